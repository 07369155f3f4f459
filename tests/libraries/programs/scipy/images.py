"""Filters on images, labels, measurements."""

import numpy as np
from scipy import ndimage


def _image(n=32):
    y, x = np.mgrid[:n, :n]
    blobs = np.exp(-((x - 8) ** 2 + (y - 9) ** 2) / 12) + np.exp(
        -((x - 22) ** 2 + (y - 20) ** 2) / 30
    )
    return blobs + np.random.default_rng(1).normal(0, 0.05, (n, n))


def smooth_and_sharpen(args):
    image = _image()
    return [
        found[::8, ::8].tolist()
        for found in (
            ndimage.gaussian_filter(image, 1.5),
            ndimage.median_filter(image, size=3),
            ndimage.sobel(image, axis=0),
            ndimage.gaussian_laplace(image, 2),
            ndimage.uniform_filter(image, 5, mode="wrap"),
            ndimage.generic_filter(image, lambda v: v.max() - v.min(), size=3),
        )
    ]


def find_blobs(args):
    image = ndimage.gaussian_filter(_image(), 1)
    labels, count = ndimage.label(image > 0.4)
    names = np.arange(1, count + 1)
    return [
        count,
        np.array(ndimage.center_of_mass(image, labels, names)).tolist(),
        ndimage.sum_labels(image, labels, names).tolist(),
        [str(where) for where in ndimage.find_objects(labels)],
        ndimage.labeled_comprehension(image, labels, names, np.ptp, float, 0).tolist(),
    ]


def shapes_and_distances(args):
    mask = _image() > 0.4
    return [
        int(ndimage.binary_opening(mask, iterations=2).sum()),
        int(ndimage.binary_fill_holes(ndimage.binary_dilation(mask)).sum()),
        ndimage.distance_transform_edt(mask)[::4, ::4].tolist(),
        ndimage.grey_erosion(_image(), size=3)[::8, ::8].tolist(),
    ]


def turn_and_stretch(args):
    image = _image()

    def swirl(place):
        return place[0] + np.sin(place[1] / 5), place[1]

    return [
        found[::8, ::8].tolist()
        for found in (
            ndimage.rotate(image, 30, reshape=False),
            ndimage.zoom(image, 1.5, order=3),
            ndimage.shift(image, (2.5, -1), mode="nearest"),
            ndimage.geometric_transform(image, swirl),
            ndimage.map_coordinates(image, np.mgrid[:9, :9] * 3.3),
        )
    ]
