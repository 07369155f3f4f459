"""Transforms over tensors, arrays and made-up images; data sets; grids."""

import numpy as np
import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms, utils
from torchvision.transforms import functional, v2


def _image(size=12):
    return torch.arange(3 * size * size, dtype=torch.float32).reshape(3, size, size) / 500


def training_augmentation(args):
    torch.manual_seed(3)
    change = transforms.Compose(
        [
            transforms.RandomCrop(12, padding=2),
            transforms.RandomHorizontalFlip(),
            transforms.Normalize((0.49, 0.48, 0.45), (0.2, 0.2, 0.2)),
        ]
    )
    return [change(_image()) for _ in range(3)]


def colours_and_blur(args):
    torch.manual_seed(3)
    jitter = transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)
    return jitter(_image()), transforms.GaussianBlur(3)(_image())


def rotated_and_warped(args):
    torch.manual_seed(3)
    moves = [
        transforms.RandomRotation(30),
        transforms.RandomAffine(10, translate=(0.1, 0.1), scale=(0.8, 1.2)),
        transforms.RandomPerspective(p=1.0),
        transforms.ElasticTransform(5.0, sigma=1.0),
    ]
    return [move(_image()) for move in moves]


def erased_and_grey(args):
    torch.manual_seed(3)
    return (
        transforms.RandomErasing(p=1.0)(_image()),
        transforms.Grayscale()(_image()),
    )


def resized(args):
    bicubic = transforms.InterpolationMode.BICUBIC
    return functional.resize(_image(), [5, 7], bicubic, antialias=True)


def five_crops_of_one_image(args):
    return torch.stack(transforms.FiveCrop(6)(_image())).mean((2, 3))


def learned_policy(args):
    torch.manual_seed(5)
    image = (_image() * 255).to(torch.uint8)
    return transforms.AutoAugment()(image), transforms.RandAugment()(image)


def array_to_tensor(args):
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    return transforms.ToTensor()(image)


def through_an_image_and_back(args):
    picture = transforms.ToPILImage()(_image().clamp(0, 1))
    smaller = functional.resize(picture, [6, 6])
    return picture.mode, picture.size, functional.pil_to_tensor(smaller)


def image_changes_of_pil(args):
    torch.manual_seed(2)
    picture = functional.to_pil_image(_image().clamp(0, 1))
    changed = functional.rotate(functional.adjust_contrast(picture, 1.5), 20)
    return np.asarray(functional.hflip(changed))


def second_version_pipeline(args):
    torch.manual_seed(4)
    change = v2.Compose(
        [
            v2.ToImage(),
            v2.RandomResizedCrop(8, antialias=True),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(mean=[0.5] * 3, std=[0.2] * 3),
            v2.ToPureTensor(),
        ]
    )
    return change(np.arange(300, dtype=np.uint8).reshape(10, 10, 3))


def mixed_batches(args):
    torch.manual_seed(4)
    images, labels = torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 0])
    mixed = v2.MixUp(num_classes=3)(images, labels)
    return mixed, v2.CutMix(num_classes=3)(images, labels)


def own_transform(args):
    class Darker(v2.Transform):
        def make_params(self, flat_inputs):
            return {"factor": torch.rand(()).item()}

        def transform(self, inpt, params):
            return inpt * params["factor"]

    torch.manual_seed(4)
    return v2.Compose([Darker(), v2.GaussianNoise()])(_image().clamp(0, 1))


def fake_data_in_batches(args):
    data = datasets.FakeData(6, (3, 8, 8), 4, transform=transforms.ToTensor())
    batches = list(DataLoader(data, batch_size=3))
    return [(images.mean((2, 3)), labels) for images, labels in batches]


def grid_of_images(args):
    return utils.make_grid(torch.stack([_image(), _image().flip(1)]), padding=1)


def flow_as_colours(args):
    return utils.flow_to_image(torch.stack([_image()[0], _image()[1]]))
