"""A shard on the network: TLS, token, strangers, many clients, kills of either side."""

import contextlib
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from stoilo.core.errors import (
    DeniedError,
    TrustError,
    UnreachableError,
    UsageError,
)
from stoilo.learn.core.orders import Snapshot
from stoilo.learn.core.tensors import flatten
from stoilo.learn.methods.lbfgs import Rules
from stoilo.learn.methods.sandblaster import Sandblaster, SandblasterSettings
from stoilo.learn.store import network
from stoilo.learn.store import protocol as p
from stoilo.learn.store.functions import Probe, register
from stoilo.learn.store.network import ShardService
from stoilo.learn.store.place import ShardPlace, read_place
from stoilo.learn.store.protocol import Change, Push
from stoilo.learn.store.remote import RemoteShard
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.vectors import Vectors
from tests.support.learning import Net, Volunteers, load_digits, run_serially
from tests.support.networkshard import NetworkShard
from tests.support.resuming import store

PROGRAMS = Path(__file__).parent / "programs"
KEYS = ["a", "b", "c"]
NET = Net((64, 10))


def push_of(sequence, change=1, function="add", source="r/w0"):
    return Push(source, sequence, [Change(key, function, change) for key in KEYS])


def values(keeper):
    return {key: cell.value for key, cell in keeper.read(KEYS).items()}


@contextlib.contextmanager
def serving(folder):
    """A service in a thread of this process."""
    service = ShardService(folder, "127.0.0.1:0")

    def work():
        with contextlib.suppress(OSError):  # the listener is closed
            service.run()

    threading.Thread(target=work, daemon=True).start()
    try:
        yield service
    finally:
        service._listener.shutdown(socket.SHUT_RDWR)
        service.close()


@pytest.fixture
def place(tmp_path):
    with serving(tmp_path / "shard") as service:
        yield service.place


@pytest.fixture
def shard(place):
    found = RemoteShard(place)
    found.create(dict.fromkeys(KEYS, 0))
    yield found
    found.close()


def test_two_clients_share_the_cells_and_one_leaving_closes_nothing(shard, place):
    other = RemoteShard(place)
    other.apply(push_of(0))
    other.close()
    shard.apply(push_of(0, source="r/w1"))
    assert values(shard) == dict.fromkeys(KEYS, 2)


def test_push_that_a_second_trainer_repeats_counts_once(shard, place):
    assert shard.apply(push_of(0)) == 3
    other = RemoteShard(place)
    assert other.apply(push_of(0)) == 0
    other.close()


def test_values_above_a_frame_go_in_several(shard):
    large = {f"k{index}": np.full(1 << 20, float(index)) for index in range(6)}
    shard.create(large)
    found = shard.read(large)
    assert all(np.array_equal(found[key].value, large[key]) for key in large)


def smallest(value, change):
    return np.minimum(value, change)


def largest(value, change):
    return np.maximum(value, change)


@pytest.fixture
def program(tmp_path):
    """A service in a process of its own: functions are loaded there, and arrays guarded."""
    with NetworkShard(tmp_path / "shard") as running:
        yield running.place


def test_function_of_a_later_client_is_judged_and_remembered(program):
    found = register("smallest", smallest, Probe(1.0, 2.0, 3.0))
    other = RemoteShard(program, [found])
    other.create(dict.fromkeys(KEYS, 0))
    assert other.apply(push_of(0, change=-1, function="smallest")) == 3
    other.close()
    changed = register("smallest", largest, Probe(1.0, 2.0, 3.0))
    third = RemoteShard(program, [changed])
    with pytest.raises(UsageError, match="STO-T012"):
        third.list_keys()
    third.close()


def test_service_opens_its_file_again_though_no_client_has_come(tmp_path):
    found = register("smallest", smallest, Probe(1.0, 2.0, 3.0))
    for _ in range(2):
        with NetworkShard(tmp_path / "s") as running:
            keeper = RemoteShard(running.place, [found])
            keeper.create(dict.fromkeys(KEYS, 0))
            keeper.close()


def test_another_token_is_denied(place):
    stranger = RemoteShard(ShardPlace(place.shard, place.token + "x", place.ca))
    with pytest.raises(DeniedError, match="STO-R001"):
        stranger.list_keys()
    assert stranger.process.started == 0


def test_shard_of_another_authority_is_not_spoken_to(place, tmp_path):
    with serving(tmp_path / "other") as other:
        wrong = RemoteShard(ShardPlace(place.shard, place.token, other.place.ca))
        with pytest.raises(TrustError, match="STO-T038"):
            wrong.list_keys()


def test_shard_that_nobody_serves_is_unreachable(place):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    gone = RemoteShard(
        ShardPlace(address, place.token, place.ca), lives=2, takeover_s=0.1
    )
    with pytest.raises(UnreachableError, match="STO-T037"):
        gone.list_keys()


def ends(stream):
    """Whether the other side hung up, whatever it said before."""
    stream.settimeout(20)
    try:
        while stream.recv(4096):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def greeted(place):
    """A stream after the handshake; a stranger to whom the certificate is nothing."""
    host, port = place.shard.split(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(socket.create_connection((host, int(port))))


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\0" * 8,
        (129).to_bytes(8, "big"),  # more than a token: nothing of it is read
        (1 << 60).to_bytes(8, "big") + b"x" * 4000,
        (40).to_bytes(8, "big") + b"short",
        os.urandom(300),
    ],
)
def test_bytes_of_strangers_end_their_stream_and_nobody_elses(shard, place, sent):
    with greeted(place) as stream:
        stream.sendall(sent)
        if len(sent) < 100:
            socket.socket.shutdown(stream, socket.SHUT_WR)
        assert ends(stream)
    assert values(shard) == dict.fromkeys(KEYS, 0)


def test_plain_text_gets_no_answer(shard, place):
    host, port = place.shard.split(":")
    with socket.create_connection((host, int(port))) as stream:
        stream.sendall(len(place.token).to_bytes(8, "big") + place.token.encode())
        assert ends(stream)
    assert shard.apply(push_of(0)) == 3


def test_silent_stranger_is_hung_up_on(place, monkeypatch):
    monkeypatch.setattr(network, "GREETING_S", 0.2)
    with greeted(place) as stream:
        began = time.monotonic()
        assert ends(stream)
        assert time.monotonic() - began < 10


def test_nonsense_of_a_friend_ends_his_stream_only(shard, place):
    with place.connect(20) as stream:
        stream.sendall((3).to_bytes(8, "big") + b"\xc1\xc1\xc1")
        assert ends(stream)
    assert values(shard) == dict.fromkeys(KEYS, 0)


def test_vectors_go_on_from_a_generation_in_another_stream(shard, place):
    first = Vectors(4, [shard], "run")
    first.put("x", np.arange(4.0))
    state = first.save()
    first.put("x", np.zeros(4))
    shard.close()
    other = RemoteShard(place)
    second = Vectors(4, [other], "run")
    second.load(state)
    assert second.gather("x").tolist() == [0.0, 1.0, 2.0, 3.0]
    other.close()


def test_space_is_the_streams_that_began_it(shard, place):
    ours = Vectors(4, [shard], "run")
    other = RemoteShard(place, takeover_s=0.1)
    with pytest.raises(UsageError, match="STO-T023"):
        Vectors(4, [other], "run")
    with pytest.raises(UsageError, match="STO-T023"):
        other.ask(p.PutRange("run", "x", np.ones(4)))
    ours.put("x", np.zeros(4))
    assert ours.total("x") == 0.0
    other.close()


def test_folder_that_is_served_is_refused_and_its_file_is_private(place, tmp_path):
    with pytest.raises(UsageError, match="STO-T023"):
        ShardService(tmp_path / "shard", "127.0.0.1:0")
    file = tmp_path / "shard" / "connection.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_place(file) == place
    assert place.token not in repr(place)


@pytest.mark.parametrize("text", ["", "{}", '{"shard": 1}', "\xff"])
def test_file_that_is_no_connection_file_is_refused(tmp_path, text):
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(UsageError, match="STO-C045"):
        read_place(tmp_path / "c.json")


def test_kill_9_of_the_shard_keeps_what_was_acknowledged_and_the_client_reconnects(
    tmp_path,
):
    with NetworkShard(tmp_path / "s") as process:
        server = ParameterServer.connect([process.place], patience_s=3.0)
        server.create(dict.fromkeys(KEYS, 0))
        for sequence in range(2):
            server.push(push_of(sequence))
            process.kill()
            threading.Timer(0.3, process.start).start()  # while the client waits
            assert server.push(push_of(sequence)) == 0
        assert values(server) == dict.fromkeys(KEYS, 2)
        assert process.line["shard"] == server.shards["shard0"].process._place.shard
        server.close()


def test_sigterm_ends_it_with_status_0(tmp_path):
    with NetworkShard(tmp_path / "s") as process:
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(20) == 0


@pytest.mark.slow
def test_kill_9_of_a_trainer_frees_its_vectors_for_another(tmp_path):
    source = (
        "import sys, time, numpy as np\n"
        "from pathlib import Path\n"
        "from stoilo.learn.store.server import ParameterServer\n"
        "from stoilo.learn.store.place import read_place\n"
        "server = ParameterServer.connect([read_place(Path(sys.argv[1]))])\n"
        "vectors = server.vectors(4, 'run')\n"
        "vectors.put('x', np.ones(4))\n"
        "print(vectors.save().plain['generations'][0], flush=True)\n"
        "time.sleep(600)\n"
    )
    with NetworkShard(tmp_path / "s") as process:
        file = process.line["connection"]
        with subprocess.Popen(
            [sys.executable, "-c", source, file], stdout=subprocess.PIPE, text=True
        ) as trainer:
            generation = int(trainer.stdout.readline())
            taken = RemoteShard(process.place, takeover_s=0.2)
            try:
                with pytest.raises(UsageError, match="STO-T023"):
                    Vectors(4, [taken], "run")
            finally:
                taken.close()
                trainer.kill()
        again = RemoteShard(process.place)
        vectors = Vectors(4, [again], "run")
        again.ask(p.LoadGeneration("run", generation))
        assert vectors.gather("x").tolist() == [1.0] * 4
        again.close()


def bowl(shards=(), **more):
    """Sandblaster on a softmax regression of 120 digits."""
    digits = load_digits()
    cut = np.split(np.arange(120), [50])
    crew = Volunteers(NET, digits.images, digits.labels, cut)
    wanted = SandblasterSettings(
        2, 1e-3, 2, rules=Rules(iterations=6), places=tuple(s.place for s in shards),
        **more,
    )  # fmt: skip
    return crew, Sandblaster(Snapshot(0, NET.start(spread=0.0)), crew.sizes, wanted)


def end_of(crew, method):
    run_serially(method, crew.answer)
    method.close()
    return flatten(method.snapshot.parameters)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["shard", "trainer"])
def test_sandblaster_on_network_shards_survives_a_kill_and_ends_where_one_in_memory_does(
    tmp_path, victim
):
    wanted = end_of(*bowl())
    with NetworkShard(tmp_path / "a") as one, NetworkShard(tmp_path / "b") as other:
        crew, method = bowl([one, other])
        run_serially(method, crew.answer, limit=14)
        saved = store(method.save())
        method.note_saved()
        run_serially(method, crew.answer, limit=3)
        if victim == "shard":
            other.kill()
            other.start()
            with pytest.raises(UnreachableError, match="STO-T037"):
                run_serially(method, crew.answer)
        method.close()
        crew, again = bowl([one, other])
        again.load(saved)
        assert (end_of(crew, again) == wanted).all()


@pytest.mark.slow
def test_two_trainings_on_the_same_shards_need_two_spaces(tmp_path):
    with NetworkShard(tmp_path / "a") as process:
        _, one = bowl([process])
        _, other = bowl([process], space="other")
        third = RemoteShard(process.place, takeover_s=0.1)
        with pytest.raises(UsageError, match="STO-T023"):
            Vectors(4, [third], "other")
        for each in (one, other, third):
            each.close()
