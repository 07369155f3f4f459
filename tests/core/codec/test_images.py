"""Pillow's images as nodes: any mode listed comes back, a forged one is refused."""

import msgspec
import numpy as np
import pytest
from PIL import Image

from stoilo.core.codec import skeleton
from stoilo.core.codec.images import _BITS
from stoilo.core.codec.nodes import from_node, to_node
from stoilo.core.errors import TrustError, UsageError

PIXELS = (np.random.default_rng(0).random((5, 3, 3)) * 255).astype("uint8")
NODE = to_node(Image.fromarray(PIXELS))


def travel(image):
    return from_node(skeleton.decode(skeleton.encode(to_node(image))))


@pytest.mark.parametrize("mode", sorted(set(_BITS) - {"PA", "LAB", "RGBX", "I;16"}))
def test_image_of_every_mode_comes_back(mode):
    image = Image.fromarray(PIXELS).convert(mode)
    back = travel(image)
    assert (back.mode, back.size) == (image.mode, image.size)
    assert back.tobytes() == image.tobytes()
    assert back.getpalette() == image.getpalette()


@pytest.mark.parametrize("size", [(0, 0), (0, 4), (4, 0)])
def test_empty_image_comes_back(size):
    assert travel(Image.new("RGB", size)).size == size


def test_image_of_another_mode_is_refused_with_what_to_send():
    with pytest.raises(UsageError, match="STO-D001") as caught:
        to_node(Image.new("La", (2, 2)))
    assert "convert" in caught.value.hint


HOSTILE = {
    "fewer pixels": {"data": b"1"},
    "another mode": {"mode": "RGBA"},
    "unknown mode": {"mode": "exec"},
    "mode that is no text": {"mode": 7},
    "negative size": {"size": (-3, -5)},
    "size beyond all": {"size": (2**40, 1)},
    "size of one number": {"size": (15,)},
    "size that is a list": {"size": [3, 5]},
    "size of a flag": {"size": (True, 15)},
    "mode with more": {"mode": "RGB;bogus"},
    "transparency of text": {"transparency": "text"},
    "pixels that are no bytes": {"data": [0] * 45},
    "palette of no colours": {"palette": b"12"},
    "transparency of objects": {"transparency": [1]},
    "another part": {"more": 1},
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_forged_image_is_refused(change):
    forged = msgspec.structs.replace(NODE, state=NODE.state | change)
    with pytest.raises(TrustError, match="STO-D002"):
        from_node(forged)
