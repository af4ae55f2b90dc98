"""The one table of bounds; every other module reads its limits here."""

from typing import Final

# Tree and forward geometry.
MAX_ROWS: Final = 32
MAX_PATH: Final = 16
MAX_DEPTH: Final = MAX_PATH - 1
MAX_SLAB: Final = 4
MAX_SLAB_ROWS: Final = MAX_SLAB * MAX_ROWS
DEFAULT_DEPTH: Final = 5
TABLE_WORDS: Final = 2048

# Memory geometry.
PAGE: Final = 64
PREFILL_GRID: Final = 256
MAX_CONTEXT: Final = 1 << 20
MAX_SEQUENCES: Final = 256
MAX_GROUPS: Final = 64
MAX_VOCAB: Final = 1 << 20
ALIGN_BYTES: Final = 256

# Messages.
DESCRIPTOR_VERSION: Final = 1
STAGE_MESSAGE_BYTES: Final = 64 * 1024
PUBLIC_MESSAGE_BYTES: Final = 16 * 1024 * 1024
METADATA_BYTES: Final = 8 * 1024
MAX_ENTRIES: Final = 1 << 15
MAX_COUNTER: Final = (1 << 63) - 1

# Requests.
MAX_REQUEST_ID: Final = 128
MAX_TENANT: Final = 128
MAX_CHOICES: Final = 8
MAX_PROMPT_BYTES: Final = 8 * 1024 * 1024
MAX_NEW_TOKENS: Final = 1 << 17
MAX_STOP_STRINGS: Final = 16
MAX_STOP_BYTES: Final = 256
MAX_STOP_IDS: Final = 64
MAX_EOS_IDS: Final = 16
MAX_BIAS_IDS: Final = 1024
MAX_LISTED_IDS: Final = 4096
MAX_MESSAGES: Final = 1024
MAX_TOOLS: Final = 128
MAX_ABORT_IDS: Final = 256
MAX_TOKENIZE_IDS: Final = MAX_CONTEXT
MAX_STREAMS_PER_CLIENT: Final = 64
MAX_QUEUE: Final = 256
MAX_TIME_MS: Final = 3_600_000

# Drafting.
MAX_SHAPE_CHARS: Final = 512
MAX_DRAFTER_CHARS: Final = 512

# Sampling.
SURVIVORS: Final = 1024
MAX_LOGPROBS: Final = 20
MIN_LOGPROB: Final = -9999.0
MAX_TEMPERATURE: Final = 100.0
MAX_BIAS: Final = 100.0
MAX_PENALTY: Final = 2.0
MAX_REPETITION: Final = 10.0
# A float32, so that rounding keeps it; its inverse times a logit stays finite.
MIN_REPETITION: Final = 1 / 128
