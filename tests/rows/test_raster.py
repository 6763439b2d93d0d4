"""The rasteriser against a slow loop over pixels and faces, and its shading."""

import numpy as np
import pytest

from protoevfl.rows import raster

SIZE = 24


def slow(points: np.ndarray, triangles: np.ndarray, focal: float, size: int) -> np.ndarray:
    """For each pixel centre: the face its ray meets first."""
    image, grey = np.zeros((size, size)), raster._shade(points[triangles])
    for row in range(size):
        for column in range(size):
            ray = np.array(
                [((column + 0.5) * 2 / size - 1) / focal, (1 - (row + 0.5) * 2 / size) / focal, 1.0]
            )
            nearest = np.inf
            for face, (a, b, c) in enumerate(points[triangles]):
                matrix = np.stack([ray, a - b, a - c], axis=1)
                if abs(np.linalg.det(matrix)) < 1e-12:
                    continue
                depth, u, v = np.linalg.solve(matrix, a)
                if u >= 0 and v >= 0 and u + v <= 1 and 0 < depth < nearest:
                    nearest, image[row, column] = depth, grey[face]
    return image


@pytest.mark.parametrize("seed", range(3))
def test_equals_ray_casting(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.uniform([-1.2, -1.2, 1.4], [1.2, 1.2, 3.8], (12, 3))
    triangles = rng.integers(0, 12, (10, 3))
    image = raster.draw(points, triangles, 2.0, SIZE)
    # centres on an edge
    assert (np.abs(image - slow(points, triangles, 2.0, SIZE)) > 1e-6).mean() < 0.003


def test_batches_do_not_change_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    points, triangles = rng.uniform([-1, -1, 2], [1, 1, 4], (30, 3)), rng.integers(0, 30, (40, 3))
    whole = raster.draw(points, triangles, 2.0, 64)
    monkeypatch.setattr(raster, "LARGEST_BATCH", 50)
    assert np.array_equal(raster.draw(points, triangles, 2.0, 64), whole)


def test_faces_that_share_an_edge_leave_no_gap() -> None:
    square = np.array([[-0.5, -0.5, 2.0], [0.5, -0.5, 2.0], [0.5, 0.5, 2.0], [-0.5, 0.5, 2.0]])
    image = raster.draw(square, np.array([[0, 1, 2], [0, 2, 3]]), 2.0, SIZE)
    lit = np.argwhere(image > 0)
    assert len(lit) == np.prod(np.ptp(lit, axis=0) + 1) == (SIZE // 2) ** 2


def test_shading_is_two_sided_and_lit_from_above_right() -> None:
    def grey(normal: list[float]) -> float:
        n = np.array(normal) / np.linalg.norm(normal)
        a = np.cross(n, [0.3, 0.5, 0.8])
        corner = np.array([0.0, 0.0, 3.0])
        face = np.stack([corner, corner + a, corner + np.cross(n, a)])
        both = raster._shade(np.stack([face, face[[0, 2, 1]]]))
        assert both[0] == pytest.approx(both[1])
        return float(both[0])

    assert grey([0.5, 0.5, -1]) > grey([-0.5, 0.5, -1])
    assert grey([0.5, 0.5, -1]) > grey([0.5, -0.5, -1])
    assert grey(list(raster.LIGHT * [1, 1, -1])) == pytest.approx(255)
    assert grey([-1, -0.5, -0.2]) == pytest.approx(255 * raster.AMBIENT)


def test_no_faces_is_background() -> None:
    assert not raster.draw(np.zeros((3, 3)) + 2, np.zeros((0, 3), dtype=np.int64), 2.0, SIZE).any()
    assert not raster.draw(np.zeros((3, 3)) + 2, np.array([[0, 1, 2]]), 2.0, SIZE).any()
