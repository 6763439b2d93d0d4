"""ModelNet-10 meshes -> the file of twelve grey views an object that `sources.load("modelnet10")`
reads.

Each mesh is centred on its bounding box, scaled to the unit sphere and seen from 12 cameras 30
degrees apart around the vertical (z) axis, 30 degrees up, at distance 2.6, so that the sphere just
fills the frame; drawn at 256 x 256 (`raster.py`) and averaged down.
"""

import io
import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from protoevfl.errors import UserError
from protoevfl.rows.dataset import Array
from protoevfl.rows.fetch import write_whole
from protoevfl.rows.raster import draw

AZIMUTHS = tuple(range(0, 360, 30))  # degrees
ELEVATION = 30  # degrees
DISTANCE = 2.6
DRAWN = 256  # pixels a side before averaging


def _read_off(path: Path) -> tuple[Array, Array]:
    """Vertices (V, 3) float64 and triangles (F, 3) int64 of an OFF file; polygons become fans of
    triangles.

    Some ModelNet files lack the line break after `OFF` ("OFF123 456 0"): both forms are read.
    """
    text = re.sub(r"#.*", "", path.read_text(encoding="ascii", errors="replace")).lstrip()
    if not text.startswith("OFF"):
        raise UserError(f"{path} is not an OFF mesh: it must begin with OFF")
    try:
        lines = [line for line in text[3:].splitlines() if line.strip()]
        vertices, faces = (int(number) for number in lines[0].split()[:2])
        points = np.array([line.split()[:3] for line in lines[1 : 1 + vertices]], dtype=np.float64)
        triangles = _triangles(lines[1 + vertices : 1 + vertices + faces])
        if points.shape != (vertices, 3) or not np.isfinite(points).all():
            raise ValueError("vertices are missing or not finite")
        if triangles.min(initial=0) < 0 or triangles.max(initial=0) >= vertices:
            raise ValueError("a face names a vertex that does not exist")
    except (ValueError, IndexError) as error:
        raise UserError(f"{path} is damaged ({error}); unpack the archive again") from error
    return points, triangles


def _triangles(lines: list[str]) -> Array:
    polygons = [[int(number) for number in line.split()] for line in lines]
    fans = [(p[1], p[1 + i], p[2 + i]) for p in polygons for i in range(1, p[0] - 1)]
    return np.array(fans, dtype=np.int64).reshape(-1, 3)


def _normalise(points: Array) -> Array:
    """Centred on the bounding box, the farthest vertex at distance 1."""
    centred = points - (points.min(axis=0) + points.max(axis=0)) / 2
    unit: Array = centred / max(float(np.linalg.norm(centred, axis=1).max()), 1e-12)
    return unit


def _camera_points(points: Array, azimuth: float, elevation: float = ELEVATION) -> Array:
    """Coordinates (right, up, depth) from a camera at (azimuth, elevation, DISTANCE) that looks at
    the origin."""
    a, e = np.deg2rad(azimuth), np.deg2rad(elevation)
    right = np.array([-np.sin(a), np.cos(a), 0.0])
    up = np.array([-np.sin(e) * np.cos(a), -np.sin(e) * np.sin(a), np.cos(e)])
    back = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])  # towards the camera
    seen: Array = points @ np.stack([right, up, -back], axis=1)
    seen[:, 2] += DISTANCE
    return seen


def _render_views(path: Path, size: int) -> Array:
    """The twelve views of one mesh: (12, size, size) uint8."""
    points, triangles = _read_off(path)
    points = _normalise(points)
    focal = np.sqrt(DISTANCE**2 - 1)  # the unit sphere touches the frame
    step = DRAWN // size
    views = [draw(_camera_points(points, a), triangles, focal, DRAWN) for a in AZIMUTHS]
    blocks = np.stack(views).reshape(len(views), size, step, size, step)
    means: Array = np.rint(blocks.mean(axis=(2, 4)))
    return means.astype(np.uint8)


def _list_meshes(directory: Path) -> tuple[tuple[str, ...], list[tuple[int, int, Path]]]:
    """Class names and (split, class, path) of every mesh: train first, by class, then by object
    number."""
    inner = directory / "ModelNet10"
    top = inner if inner.is_dir() else directory
    names = (
        tuple(sorted(d.name for d in top.iterdir() if (d / "train").is_dir()))
        if top.is_dir()
        else ()
    )
    meshes = [
        (split, label, path)
        for split, part in enumerate(("train", "test"))
        for label, name in enumerate(names)
        for path in sorted((top / name / part).glob("*.off"))
    ]
    if not meshes:
        raise UserError(
            f"{directory} holds no meshes; expected CLASS/train/*.off and CLASS/test/*.off as in "
            "ModelNet10"
        )
    return names, meshes


def render_modelnet10(
    directory: str | Path,
    out: str | Path,
    size: int = 32,
    progress: Callable[[int, int], None] | None = None,
    workers: int | None = None,
) -> Path:
    """Renders every mesh under `directory` into the file `out`; `progress(done, total)` is called
    for each.

    `workers` processes draw (default: one a core; 1: none but this one). The file appears when all
    is drawn.
    """
    if size < 1 or DRAWN % size:
        raise UserError(f"size must divide {DRAWN}, for example 32 or 64, not {size}")
    names, meshes = _list_meshes(Path(directory))
    views = np.zeros((len(meshes), len(AZIMUTHS), size, size), dtype=np.uint8)
    paths = [path for _, _, path in meshes]
    job = partial(_render_views, size=size)
    workers = workers or os.cpu_count() or 1
    if workers > 1:
        with ProcessPoolExecutor(workers) as pool:
            _collect(pool.map(job, paths), views, progress)
    else:
        _collect(map(job, paths), views, progress)
    target = Path(out)
    _write(target, names, meshes, views)
    return target


def _collect(
    results: Iterable[Array], views: Array, progress: Callable[[int, int], None] | None
) -> None:
    for done, result in enumerate(results, start=1):
        views[done - 1] = result
        if progress is not None:
            progress(done, len(views))


def _write(
    target: Path, names: tuple[str, ...], meshes: list[tuple[int, int, Path]], views: Array
) -> None:
    packed = io.BytesIO()
    np.savez_compressed(
        packed,
        views=views,
        label=np.array([label for _, label, _ in meshes], dtype=np.uint8),
        split=np.array([split for split, _, _ in meshes], dtype=np.uint8),
        object_id=np.array([path.stem for _, _, path in meshes]),
        source=np.zeros(len(meshes), dtype=np.uint8),  # 0: rendered from the mesh
        class_names=np.array(names),
        azimuth_deg=np.array(AZIMUTHS, dtype=np.int64),
        elevation_deg=np.array(ELEVATION, dtype=np.int64),
    )
    write_whole(target, packed.getvalue())
