"""Pillow: research programs give plain CPython's very answer, attacks are stopped."""

import pytest
from PIL import Image

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import from_node
from stoilo.core.types import RunStatus
from tests.support.libraries import (
    assert_stopped,
    check_program,
    programs_of,
    run_jailed,
)

FAKE = """
import io
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont, ImageOps

def picture():
    return Image.new("L", (4, 4), 7)

seen = []

class Fake:
    size, mode, image = (4, 4), "L", None

    def load(self):
        pass

    def filter(self, image):
        seen.append(image)
        return image

    @property
    def im(self):
        return self

    def chop_add(self, image, scale, offset):
        seen.append(image)
        return image

    def _new(self, image):
        return image

class Evil:
    def __init__(self, items):
        self.items = items

    def __float__(self):
        self.items.clear()
        return 1.0

    def __int__(self):
        self.items.clear()
        return 1
"""
ATTACKS = {
    "opens a path": (
        "try:\n        return bool(Image.open('/nowhere.png'))\n"
        "    except FileNotFoundError:\n        return True"
    ),
    "saves to a path": "return picture().save('/dev/null', 'PNG') is None",
    "saves through an object of its own": (
        "picture().save(type('F', (io.BytesIO,), {'name': 'x.png'})(), 'PNG'); return True"
    ),
    "shows a picture": "return callable(picture().show)",
    "takes C's object": "return picture().im is not None",
    "takes C's object by getattr": "return getattr(picture(), 'im') is not None",
    "takes C's object through a function of PIL's": (
        "import operator\n    from PIL import ImageSequence\n"
        "    peek = operator.attrgetter('im')\n"
        "    return ImageSequence.all_frames(picture(), peek)[0] is not None"
    ),
    "takes C's object as data": "return type(picture().getdata()).__name__ == 'ImagingCore'",
    "takes a pointer": "return picture().getim() is not None",
    "takes C's object of a drawing": "return ImageDraw.Draw(picture()).draw is not None",
    "is handed C's object as a filter": "picture().filter(Fake()); return len(seen)",
    "is handed C's object as an image": "ImageChops.add(Fake(), picture()); return len(seen)",
    "moves a decoder": (
        "file = io.BytesIO(); picture().save(file, 'PNG')\n"
        "    return len(Image.open(file).tile)"
    ),
    "reads the decoder's file": (
        "file = io.BytesIO(); picture().save(file, 'PNG')\n"
        "    return Image.open(file).fp is file"
    ),
    "packs by another codec": "return len(picture().tobytes('zip', 'L', 1, 1, 1))",
    "reads a font of the host": "return callable(ImageFont.truetype)",
    "reads another font": "return callable(ImageFont.load_default().font_variant)",
    "draws with C's mask": "return ImageFont.load_default().getmask('a') is not None",
    "writes a palette": "return callable(picture().convert('P').palette.save)",
    "registers a decoder": "return callable(Image.register_open)",
    "makes noise without a seed": "return callable(Image.effect_noise)",
    "raises the limit on size": "Image.MAX_IMAGE_PIXELS = None; return True",
    "assigns C's object": "p = picture(); p.im = p.im; return True",
    "takes a method for another object": "return Image.Image.getbands(Fake())[0] == 'L'",
    "extends a filter": "class F(ImageFilter.Kernel):\n        pass\n    return bool(F)",
}


@pytest.mark.parametrize(("path", "name"), programs_of("PIL"))
def test_program_gives_the_plain_answer(path, name):
    check_program(path, name)


@pytest.mark.parametrize("body", ATTACKS.values(), ids=list(ATTACKS))
def test_attack_is_stopped(body):
    assert_stopped(f"{FAKE}\ndef run(args):\n    {body}", "PIL")


def test_image_travels_both_ways():
    picture = Image.linear_gradient("L").convert("P")
    source = "from PIL import Image\ndef run(args):\n    return args['p'].rotate(90)\n"
    outcome = run_jailed(source, "run", {"p": picture}, ("PIL",))
    assert outcome.status is RunStatus.OK
    assert from_node(skeleton.decode(outcome.value)) == picture.rotate(90)
