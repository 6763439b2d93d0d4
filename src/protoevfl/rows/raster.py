"""A z-buffer rasteriser in numpy: triangles -> scan lines -> pixels, without a loop over any of
them.

A pixel belongs to a triangle when its centre lies inside; inverse depth is linear on the screen,
the largest one wins, ties go to the face listed first. Shading is flat and two-sided (normals n are
turned to the camera), from a light l fixed to the camera, a little above and to the right of it:

    grey = 255 (0.25 + 0.75 max(0, n . l))
"""

import numpy as np

from protoevfl.rows.dataset import Array

LIGHT = np.array([0.35, 0.55, 0.76])  # right, up, towards the camera
AMBIENT = 0.25
LARGEST_BATCH = 4_000_000  # pixels drawn at once


def draw(points: Array, triangles: Array, focal: float, size: int) -> Array:
    """(V, 3) camera coordinates (right, up, depth > 0) and (F, 3) faces -> (size, size) float64
    grey, top row first."""
    screen, inverse = _project(points, focal, size)
    corners, depth = screen[triangles], inverse[triangles]  # (F, 3, 2), (F, 3)
    plane, solid = _inverse_depth_planes(corners, depth)
    faces = np.flatnonzero(solid)
    best = np.zeros(size * size)  # inverse depth of the nearest face so far; 0: background
    owner = np.full(size * size, -1)
    line_face, line_y, left, right = _scan_lines(corners, faces, size)
    for part in _batches(right - left):
        face, y, x = _spread(line_face[part], line_y[part], left[part], right[part])
        # inverse depth at integer pixels
        value = plane[face, 0] * x + plane[face, 1] * y + plane[face, 2]
        _nearest(y * size + x, face, value, best, owner)
    grey = np.append(_shade(points[triangles]), 0.0)  # the last one is for owner -1
    image: Array = grey[owner].reshape(size, size)
    return image


def _project(points: Array, focal: float, size: int) -> tuple[Array, Array]:
    """Pixel coordinates (V, 2) with centres of pixels at whole numbers, and inverse depth (V,)."""
    inverse = 1.0 / np.maximum(points[:, 2], 1e-9)
    # -1..1 within the frame
    right, up = points[:, 0] * inverse * focal, points[:, 1] * inverse * focal
    return np.stack([(right + 1) * size / 2 - 0.5, (1 - up) * size / 2 - 0.5], axis=1), inverse


def _inverse_depth_planes(corners: Array, depth: Array) -> tuple[Array, Array]:
    """(F, 3) coefficients of 1/z = a x + b y + c on the screen, and which faces have an area
    (F,)."""
    (ax, ay), (bx, by) = (corners[:, 1] - corners[:, 0]).T, (corners[:, 2] - corners[:, 0]).T
    area = ax * by - ay * bx
    solid = np.abs(area) > 1e-12
    safe = np.where(solid, area, 1.0)
    da, db = depth[:, 1] - depth[:, 0], depth[:, 2] - depth[:, 0]
    a, b = (da * by - db * ay) / safe, (db * ax - da * bx) / safe
    return np.stack(
        [a, b, depth[:, 0] - a * corners[:, 0, 0] - b * corners[:, 0, 1]], axis=1
    ), solid


def _scan_lines(corners: Array, faces: Array, size: int) -> tuple[Array, Array, Array, Array]:
    """Face, row and pixel range [left, right) of every row that a face covers."""
    ys = corners[faces, :, 1]  # (f, 3)
    top = np.clip(np.ceil(ys.min(axis=1)), 0, size).astype(np.int64)
    bottom = np.clip(np.ceil(ys.max(axis=1)), 0, size).astype(np.int64)
    count = np.maximum(bottom - top, 0)
    face = np.repeat(faces, count)  # (L,)
    y = np.repeat(top, count) + _places(count)
    start, end = corners[face], np.roll(corners[face], -1, axis=1)  # (L, 3, 2) edges
    crosses = (start[..., 1] <= y[:, None]) != (end[..., 1] <= y[:, None])  # two of three edges
    slope = (end[..., 0] - start[..., 0]) / np.where(crosses, end[..., 1] - start[..., 1], 1.0)
    x = start[..., 0] + (y[:, None] - start[..., 1]) * slope
    left = np.where(crosses, x, np.inf).min(axis=1).clip(-1, size)
    right = np.where(crosses, x, -np.inf).max(axis=1).clip(-1, size)
    return face, y, np.maximum(np.ceil(left), 0).astype(np.int64), np.ceil(right).astype(np.int64)


def _places(count: Array) -> Array:
    """0, 1, ... within each of the runs.

    >>> _places(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    ends = np.cumsum(count)
    run: Array = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - count, count)
    return run


def _batches(width: Array) -> list[slice]:
    """Consecutive scan lines, about LARGEST_BATCH pixels at a time."""
    total = np.cumsum(np.maximum(width, 0))
    cuts = np.searchsorted(
        total, np.arange(LARGEST_BATCH, (total[-1] if len(total) else 0), LARGEST_BATCH)
    )
    edges = [0, *cuts.tolist(), len(width)]
    return [slice(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True) if b > a]


def _spread(face: Array, y: Array, left: Array, right: Array) -> tuple[Array, Array, Array]:
    """Face, row and column of every pixel of the scan lines."""
    width = np.maximum(right - left, 0)
    return np.repeat(face, width), np.repeat(y, width), np.repeat(left, width) + _places(width)


def _nearest(pixel: Array, face: Array, value: Array, best: Array, owner: Array) -> None:
    """Keeps, for each pixel, the face with the largest inverse depth; of equals the first."""
    order = np.lexsort((-face, value, pixel))  # the last entry of a pixel is the nearest
    pixel, face, value = pixel[order], face[order], value[order]
    last = np.append(pixel[1:] != pixel[:-1], True) if len(pixel) else np.zeros(0, dtype=bool)
    pixel, face, value = pixel[last], face[last], value[last]
    wins = value > best[pixel]
    best[pixel[wins]], owner[pixel[wins]] = value[wins], face[wins]


def _shade(corners: Array) -> Array:
    """(F, 3, 3) camera coordinates of the corners -> (F,) grey."""
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-12)
    away = (normal * corners[:, 0]).sum(axis=1, keepdims=True) > 0  # the camera is at the origin
    normal = np.where(away, -normal, normal)
    light = LIGHT * [1, 1, -1] / np.linalg.norm(LIGHT)  # depth grows away from the camera
    grey: Array = 255 * (AMBIENT + (1 - AMBIENT) * np.maximum(normal @ light, 0.0))
    return grey
