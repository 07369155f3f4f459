"""Images made, changed, drawn on, measured, encoded and decoded in memory."""

import io

import numpy as np
from PIL import (
    Image,
    ImageChops,
    ImageColor,
    ImageDraw,
    ImageEnhance,
    ImageFilter,
    ImageFont,
    ImageOps,
    ImageSequence,
    ImageStat,
)
from PIL.PngImagePlugin import PngInfo


def _picture(mode="RGB", size=(48, 32)):
    y, x = np.mgrid[0 : size[1], 0 : size[0]]
    parts = [(x * 5) % 256, (y * 7) % 256, (x * y) % 256]
    return Image.fromarray(np.stack(parts, axis=-1).astype(np.uint8)).convert(mode)


def _through(image, format, **options):
    file = io.BytesIO()
    image.save(file, format, **options)
    file.seek(0)
    back = Image.open(file)
    return file.getvalue(), back.format, back.size, back.mode, back.tobytes()


def png(args):
    return _through(_picture("RGBA"), "PNG", optimize=True)


def jpeg(args):
    return _through(_picture(), "JPEG", quality=80, progressive=True)


def gif(args):
    return _through(_picture("P"), "GIF")


def bmp(args):
    return _through(_picture("L"), "BMP")


def tiff(args):
    return _through(_picture(), "TIFF", compression="tiff_lzw")


def webp(args):
    return _through(_picture(), "WEBP", lossless=True)


def ppm(args):
    return _through(_picture(), "PPM")


def animation(args):
    frames = [_picture("L", (16, 16)).rotate(20 * k) for k in range(4)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], duration=50, loop=0)
    back = Image.open(io.BytesIO(file.getvalue()))
    shown = [one.convert("L").tobytes() for one in ImageSequence.Iterator(back)]
    return back.n_frames, back.info["duration"], shown


def text_in_png(args):
    info = PngInfo()
    info.add_text("Author", "someone")
    file = io.BytesIO()
    _picture().save(file, "PNG", pnginfo=info)
    return dict(Image.open(io.BytesIO(file.getvalue())).text)


def resized(args):
    p = _picture()
    ways = (Image.Resampling.NEAREST, Image.Resampling.LANCZOS, Image.Resampling.BICUBIC)
    return [p.resize((20, 31), way).tobytes() for way in ways], p.reduce(2).tobytes()


def thumbnail(args):
    p = _picture(size=(300, 200))
    p.thumbnail((64, 64))
    return p.size, p.tobytes()


def cropped_and_pasted(args):
    p = _picture()
    part = p.crop((5, 6, 25, 20)).transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    p.paste(part, (1, 2))
    p.paste((255, 0, 0), [0, 0, 3, 3])
    return p.tobytes(), p.getpixel((2, 2)), p.getbbox()


def rotated(args):
    p = _picture("L")
    found = p.rotate(33, expand=True, resample=Image.Resampling.BILINEAR, fillcolor=9)
    return found.size, found.tobytes()


def transformed(args):
    p = _picture("L")
    tilt = p.transform((40, 40), Image.Transform.AFFINE, [1, 0.3, 0, -0.1, 1, 2])
    mesh = [((0, 0, 20, 20), (0, 0, 0, 30, 30, 30, 30, 0))]
    return tilt.tobytes(), p.transform((20, 20), Image.Transform.MESH, mesh).tobytes()


def converted(args):
    p = _picture()
    matrix = (0.4, 0.3, 0.2, 0, 0.2, 0.5, 0.1, 0, 0.1, 0.1, 0.9, 3)
    modes = ("L", "1", "P", "CMYK", "YCbCr", "HSV", "LAB", "F", "I")
    return [p.convert(mode).tobytes() for mode in modes], p.convert("RGB", matrix).tobytes()


def quantized(args):
    q = _picture().quantize(12, method=Image.Quantize.MEDIANCUT)
    return q.getpalette()[:36], q.tobytes(), q.getcolors()


def filtered(args):
    p = _picture()
    filters = [
        ImageFilter.GaussianBlur(1.5),
        ImageFilter.BoxBlur(2),
        ImageFilter.UnsharpMask(),
        ImageFilter.MedianFilter(3),
        ImageFilter.FIND_EDGES,
        ImageFilter.Kernel([3, 3], [0, -1, 0, -1, 5, -1, 0, -1, 0]),
        ImageFilter.ModeFilter(3),
    ]
    return [p.filter(one).tobytes() for one in filters]


def colour_table(args):
    table = ImageFilter.Color3DLUT.generate(5, lambda r, g, b: (g, b, r))
    return _picture().filter(table).tobytes()


def drawn(args):
    p = Image.new("RGB", (80, 60), "white")
    d = ImageDraw.Draw(p)
    d.line([(0, 0), (40, 30), (79, 5)], fill="navy", width=3)
    d.ellipse((10, 10, 40, 50), outline="#ff0000", fill=(0, 200, 0))
    d.polygon([(50, 50), (70, 55), (60, 20)], fill=ImageColor.getrgb("hsl(120,50%,40%)"))
    d.rounded_rectangle((3, 30, 30, 57), 6, outline=0)
    d.arc((30, 30, 60, 58), 10, 200, fill="black")
    d.point([1, 2, 3, 4], fill="black")
    return p.tobytes()


def written(args):
    p = Image.new("L", (120, 30))
    font = ImageFont.load_default(14)
    ImageDraw.Draw(p).text((2, 3), "stoilo 42", fill=255, font=font)
    return p.tobytes(), font.getbbox("stoilo"), ImageDraw.Draw(p).textlength("abc")


def flooded(args):
    p = Image.new("L", (20, 20))
    ImageDraw.Draw(p).rectangle([5, 5, 14, 14], outline=200)
    ImageDraw.floodfill(p, (9, 9), 77)
    return p.tobytes()


def operations(args):
    p = _picture()
    found = [
        ImageOps.autocontrast(p),
        ImageOps.equalize(p),
        ImageOps.invert(p),
        ImageOps.posterize(p, 3),
        ImageOps.solarize(p, 100),
        ImageOps.fit(p, (20, 20)),
        ImageOps.pad(p, (50, 50)),
        ImageOps.expand(p, 4, "red"),
        ImageOps.colorize(p.convert("L"), "black", "yellow", mid="blue"),
    ]
    return [one.tobytes() for one in found]


def enhanced(args):
    p = _picture()
    ways = (ImageEnhance.Brightness, ImageEnhance.Color, ImageEnhance.Contrast)
    return [way(p).enhance(1.4).tobytes() for way in (*ways, ImageEnhance.Sharpness)]


def channel_arithmetic(args):
    p, q = _picture(), _picture().rotate(180)
    ways = (ImageChops.add, ImageChops.difference, ImageChops.multiply, ImageChops.screen)
    return [way(p, q).tobytes() for way in (*ways, ImageChops.darker)]


def blended(args):
    p, q = _picture(), _picture().rotate(90)
    mask = Image.linear_gradient("L").resize(p.size)
    return Image.blend(p, q, 0.3).tobytes(), Image.composite(p, q, mask).tobytes()


def statistics(args):
    s = ImageStat.Stat(_picture())
    return s.mean, s.stddev, s.median, s.extrema, _picture().entropy(), _picture().histogram()


def channels(args):
    r, g, b = _picture().split()
    p = Image.merge("RGB", (b, r, g))
    p.putalpha(128)
    return p.tobytes(), p.getchannel("A").getextrema(), p.getbands()


def points(args):
    p = _picture("L")
    return p.point(lambda v: v * 2 % 256).tobytes(), p.point([255 - k for k in range(256)]).tobytes()


def pixels(args):
    p = Image.new("L", (4, 4))
    p.putdata(list(range(0, 160, 10)))
    access = p.load()
    access[1, 1] = 250
    p.putpixel((0, 3), 3)
    return list(p.getdata()), access[1, 1], np.asarray(p)


def raw_bytes(args):
    p = Image.frombytes("L", (3, 2), bytes(range(6)))
    q = Image.frombuffer("RGB", (2, 1), bytes(range(6)), "raw", "BGR", 0, 1)
    return p.tobytes(), q.tobytes(), q.tobytes("raw", "BGR"), p == p.copy()


def arrays(args):
    a = np.asarray(_picture("F")) / 255
    return a, np.array(Image.fromarray(a).resize((5, 5))), np.array(_picture("I"))


def travelling(args):
    modes = ("1", "L", "P", "RGB", "RGBA", "CMYK", "F", "I", "LA")
    file = io.BytesIO()
    _picture("P").save(file, "PNG", transparency=3)
    return [_picture(mode) for mode in modes], Image.open(file), Image.new("L", (0, 3))
