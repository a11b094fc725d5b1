"""Makes a thumbnail of each photo whose name comes: worker.py PHOTOS THUMBNAILS

Safe to repeat: a second run writes the same file again. What is no image is rejected, for it will be
none the next time either. Trouble with the disk is raised, and so tried again.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from pathlib import Path

from ganger_worker import Outcome, Task, done, reject, run
from PIL import Image, ImageOps, UnidentifiedImageError

PHOTOS, THUMBNAILS = (Path(folder).resolve() for folder in sys.argv[1:])
SIZE = (256, 256)
Image.MAX_IMAGE_PIXELS = 100_000_000
warnings.simplefilter("error", Image.DecompressionBombWarning)


def make(task: Task) -> Outcome:
    source = (PHOTOS / task.text).resolve()
    if not source.is_relative_to(PHOTOS):
        return reject(f"not below {PHOTOS.name}/: {task.text}")
    try:
        photo = source.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return reject(f"no such photo: {task.text}")
    try:
        small = thumbnail(photo)
    except UnidentifiedImageError:
        return reject(f"no image: {task.text}")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, Warning) as error:
        return reject(f"damaged, or too large: {task.text}: {error}")
    write(THUMBNAILS / source.relative_to(PHOTOS).with_suffix(".webp"), small)
    return done()


def thumbnail(photo: bytes) -> bytes:
    with Image.open(io.BytesIO(photo)) as image:
        image.draft("RGB", SIZE)  # a JPEG need not be decoded at its full size
        upright = ImageOps.exif_transpose(image)
    upright.thumbnail(SIZE)
    out = io.BytesIO()
    upright.convert("RGBA" if upright.has_transparency_data else "RGB").save(out, "WEBP")
    return out.getvalue()


def write(path: Path, data: bytes) -> None:
    """Whole or not at all, whenever this process or the machine dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # By the worker's number: what a killed one leaves behind its successor writes over.
    part = path.with_name(f".{os.environ['GANGER_WORKER']}.part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


run(make)
