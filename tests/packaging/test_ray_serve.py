"""examples/ray_serve with Ray itself: two replicas on this machine, asked over HTTP."""

from __future__ import annotations

import re
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from examples.classify import demo as classify
from examples.ray_serve import demo

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return demo.ray_python()
    except demo.NoRay as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def bundle() -> Path:
    return classify.export(classify.load_model())


@pytest.fixture(scope="module")
def url(python: Path, bundle: Path) -> Iterator[str]:
    with demo.served(python, bundle) as url:
        yield url


def test_replicas_answer_what_eager_answers(url: str, bundle: Path) -> None:
    photo = classify.write_photo()
    photos = [np.roll(photo, 7 * (i % 4), axis=1) for i in range(48)]
    answers = demo.classify(url, photos)
    module = classify.load_model()
    eager = [classify.run_eager(module, p, threads=2, runs=1)["probabilities"] for p in photos[:4]]
    for i, answer in enumerate(answers):
        for found in answer["classes"]:
            assert abs(found["probability"] - eager[i % 4][found["class"]]) < 1e-4
    assert max(answer["batch"] for answer in answers) > 1
    replicas = {answer["pid"] for answer in answers}
    assert len(replicas) == demo.REPLICAS
    for pid in replicas:
        assert own_nbytes(pid, bundle) == 0


def own_nbytes(pid: int, file: Path) -> int:
    """Bytes of a mapped file that a process does not share with others who map it."""
    maps = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path(f"/proc/{pid}/smaps").read_text(), flags=re.MULTILINE)
    ours = [text for text in maps if str(file) in text.partition("\n")[0]]
    assert ours, f"process {pid} has not mapped {file}"
    return sum(1024 * int(kb) for text in ours for kb in re.findall(r"^Private_Dirty: +(\d+) kB", text, re.MULTILINE))


def test_a_body_of_another_size_is_refused(url: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        demo.ask(url, b"12")
    assert refused.value.code == 400
    assert refused.value.read() == (b'{"error":"the body has 2 bytes; a photograph of 224 x 224 pixels has 150528"}')


def test_there_is_no_torch_beside_ray(python: Path) -> None:
    program = (
        "import sys; sys.path.remove(''); import hardtack, importlib.util; hardtack.load; "
        "print(importlib.util.find_spec('torch'), 'torch' in sys.modules)"
    )
    assert demo.run(python, "-c", program) == "None False\n"
