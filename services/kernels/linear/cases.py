"""Weight shapes [N, K] that the matrix products meet."""

from typing import Final

LUMO_TINY: Final = ((1036, 256), (256, 384), (768, 256), (1280, 256), (256, 640), (8192, 256))
QWEN_27B: Final = (
    (16480, 5120),
    (5120, 6144),
    (14336, 5120),
    (34816, 5120),
    (5120, 17408),
    (248320, 5120),
)
