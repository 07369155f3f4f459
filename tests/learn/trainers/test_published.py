"""The names and arguments of both published revisions, as they stand there."""

import pytest
import torch
from torch import nn

import stoilo
from stoilo.core.errors import UsageError
from stoilo.learn import SimulatedBackend, SimulatedHost

LOSS = nn.functional.cross_entropy


def make_data(samples=96, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 6, generator=generator)
    return x, x[:, :3].argmax(1)


def make_loader(size=12):
    x, y = make_data()
    dataset = torch.utils.data.TensorDataset(x, y)
    return torch.utils.data.DataLoader(dataset, batch_size=size)


def make_model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def weights(model):
    return torch.cat([p.detach().ravel() for p in model.parameters()])


def make_trainer(place=None, **options):
    return stoilo.ddl.DPBGDTrainer(
        place, make_model(), LOSS, torch.optim.Adam, {"lr": 0.02}, **options
    )


def test_both_places_hold_the_same_trainers():
    assert stoilo.ddl.__all__ == stoilo.ml.__all__
    for name in stoilo.ml.__all__:
        assert getattr(stoilo.ddl, name) is getattr(stoilo.ml, name)
        assert getattr(stoilo.ml, name) is getattr(stoilo.learn, name)


def test_every_public_name_of_learning_is_there():
    for name in stoilo.learn.__all__:
        assert getattr(stoilo.learn, name) is not None


async def test_arguments_of_2025_by_place_have_flavor_and_redundancy():
    options = stoilo.CreateOptions(min_quorum=1, delay_bound=600)
    trainer = stoilo.ddl.DPBGDTrainer(
        None, make_model(), LOSS, torch.optim.Adam, {"lr": 0.02}, "tensor", options
    )
    model, loss = await trainer.epoch(make_loader())
    await trainer.close()
    assert isinstance(model, nn.Module)
    assert isinstance(loss, float)


async def test_epoch_in_two_halves_is_the_epoch():
    ends = []
    for halves in (False, True):
        async with make_trainer() as trainer:
            for _ in range(2):
                if halves:
                    works = await trainer.epoch_create_work(make_loader())
                    assert len(works) == 8
                    model, loss = await trainer.epoch_aggregate_results(works)
                else:
                    model, loss = await trainer.epoch(make_loader())
        ends.append((weights(model), loss))
    assert torch.equal(ends[0][0], ends[1][0])
    assert ends[0][1] == pytest.approx(ends[1][1], rel=1e-12)


async def test_work_is_under_way_before_it_is_waited_for():
    place = SimulatedBackend([SimulatedHost()])
    async with make_trainer(place) as trainer:
        works = await trainer.epoch_create_work(make_loader())
        ends = {(await place.next()).job_id for _ in works}
        assert ends == set(works)
        assert len(ends) == 8


async def test_work_that_is_not_the_present_one_is_refused():
    async with make_trainer() as trainer:
        old = await trainer.epoch_create_work(make_loader())
        new = await trainer.epoch_create_work(make_loader())
        for works in ((), old):
            with pytest.raises(UsageError, match="STO-T081"):
                await trainer.epoch_aggregate_results(works)
        await trainer.epoch_aggregate_results(new)
        with pytest.raises(UsageError, match="STO-T081"):
            await trainer.epoch_aggregate_results(new)
    assert trainer.snapshot.version == 1


@pytest.mark.parametrize("calls", ["de", "ede", "eed", "dedd"])
async def test_datasets_and_loaders_take_turns_and_no_step_is_lost(calls):
    """Two passes over the same samples are the same step, from dataset or loader."""
    async with make_trainer() as alone, make_trainer(dataset=make_data()) as mixed:
        for call in calls:
            await alone.epoch(make_loader())
            await (mixed.train_epoch() if call == "d" else mixed.epoch(make_loader()))
    assert torch.allclose(weights(alone.model), weights(mixed.model), atol=1e-6)
    assert mixed.snapshot.version == mixed.epoch_number == len(calls)


async def test_loader_beside_a_folder_of_the_dataset_is_refused(tmp_path):
    options = stoilo.ml.DPBGDOptions(folder=tmp_path)
    async with make_trainer(dataset=make_data(), options=options) as trainer:
        with pytest.raises(UsageError, match="STO-T081"):
            await trainer.epoch(make_loader())


async def test_empty_loader_is_named():
    async with make_trainer() as trainer:
        with pytest.raises(UsageError, match="STO-T004"):
            await trainer.epoch([])
