"""A hand-made tree of meshes becomes the file that `sources.load` reads."""

from pathlib import Path

import numpy as np
import pytest
import torch

from protoevfl.errors import UserError
from protoevfl.rows import modelnet, sources

CUBE = """OFF8 6 0
-2 -1 -1
-2 -1 1
-2 1 -1
-2 1 1
2 -1 -1
2 -1 1
2 1 -1
2 1 1
4 0 1 3 2
4 4 6 7 5
4 0 4 5 1
4 2 3 7 6
4 0 2 6 4
4 1 5 7 3
"""
TETRAHEDRON = """OFF
# a comment
4 4 6
0 0 0
1 0 0
0 1 0
0 0 1

3 0 1 2
3 0 1 3
3 0 2 3
3 1 2 3
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, mesh in (("cube", CUBE), ("tetrahedron", TETRAHEDRON)):
        for part, numbers in (("train", (2, 1)), ("test", (3,))):
            folder = tmp_path / "ModelNet10" / name / part
            folder.mkdir(parents=True)
            for number in numbers:
                (folder / f"{name}_{number:04d}.off").write_text(mesh)
    return tmp_path


def mesh(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mesh.off"
    path.write_text(text)
    return path


def test_both_headers_and_polygons(tmp_path: Path) -> None:
    points, triangles = modelnet._read_off(mesh(tmp_path, CUBE))
    assert points.shape == (8, 3)
    assert triangles.shape == (12, 3)
    points, triangles = modelnet._read_off(mesh(tmp_path, TETRAHEDRON))
    assert triangles.tolist() == [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]
    assert points[3].tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "PLY\n",
        "OFF\n",
        "OFF\n1 1 0\n0 0 0\n3 0 0 9\n",
        "OFF\n2 0 0\n0 0 0\n",
        "OFF\n1 0 0\n0 x 0\n",
        "OFF\n1 0 0\nnan 0 0\n",
    ],
)
def test_damaged_mesh_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"mesh\.off"):
        modelnet._read_off(mesh(tmp_path, text))


def test_normalised_mesh_fits_the_unit_sphere() -> None:
    points = modelnet._normalise(np.array([[5.0, 5, 5], [7, 5, 5], [5, 6, 5]]))
    assert np.allclose(points.min(axis=0) + points.max(axis=0), 0)
    assert np.linalg.norm(points, axis=1).max() == pytest.approx(1)


def test_cameras_stand_around_the_vertical_axis() -> None:
    top = np.array([[0.0, 0.0, 0.5]])
    seen = [modelnet._camera_points(top, a)[0] for a in modelnet.AZIMUTHS]
    assert np.allclose(seen, seen[0])
    assert seen[0][1] > 0  # up is up
    assert seen[0][2] < modelnet.DISTANCE  # seen from above: the top is nearer
    assert modelnet._camera_points(np.array([[1.0, 0, 0]]), 0)[0, 2] < modelnet.DISTANCE


def test_cube_looks_the_same_from_opposite_sides(tmp_path: Path) -> None:
    views = modelnet._render_views(mesh(tmp_path, CUBE), 32)
    assert views.shape == (12, 32, 32)
    assert np.array_equal(views[:6], views[6:])
    # a long box: narrow from the end, wide from the side
    assert not np.array_equal(views[0], views[3])
    assert (views[3] > 0).sum() > (views[0] > 0).sum()
    assert 227 in views  # the grey of a level top


def test_tree_becomes_the_file_that_load_reads(tree: Path) -> None:
    seen: list[tuple[int, int]] = []
    out = tree / "modelnet10_12view_32.npz"
    modelnet.render_modelnet10(
        tree, out, progress=lambda done, total: seen.append((done, total)), workers=1
    )
    assert seen == [(i, 6) for i in range(1, 7)]
    with np.load(out, allow_pickle=False) as arrays:
        assert arrays["object_id"].tolist()[:2] == ["cube_0001", "cube_0002"]
        assert arrays["split"].tolist() == [0, 0, 0, 0, 1, 1]
        assert arrays["label"].tolist() == [0, 0, 1, 1, 0, 1]
        assert arrays["source"].tolist() == [0] * 6
        assert arrays["azimuth_deg"].tolist() == list(range(0, 360, 30))
        assert int(arrays["elevation_deg"]) == 30
    dataset = sources.load("modelnet10", root=tree)
    assert isinstance(dataset.features, torch.Tensor)
    assert dataset.features.shape == (6, 12, 32, 32)
    assert dataset.class_names == ("cube", "tetrahedron")
    assert dataset.test.tolist() == [4, 5]


def test_a_damaged_mesh_leaves_no_file(tree: Path) -> None:
    (tree / "ModelNet10" / "cube" / "test" / "cube_0003.off").write_text("OFF\n")
    with pytest.raises(UserError, match=r"cube_0003\.off"):
        modelnet.render_modelnet10(tree, tree / "out.npz", workers=1)
    assert not list(tree.glob("*out.npz*"))


def test_wrong_folder_and_size(tmp_path: Path, tree: Path) -> None:
    with pytest.raises(UserError, match="no meshes"):
        modelnet.render_modelnet10(tmp_path / "nowhere", tmp_path / "out.npz")
    with pytest.raises(UserError, match="must divide 256"):
        modelnet.render_modelnet10(tree, tmp_path / "out.npz", size=50)
