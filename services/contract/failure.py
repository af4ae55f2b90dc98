"""A contract error on the ring: a stage's refusal, there and back."""

from typing import TYPE_CHECKING

from services.contract import errors

if TYPE_CHECKING:
    from services.contract._pb import stage_pb2

_KINDS = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.ContractError)
}


def failure_from_error(stage: str, error: errors.ContractError) -> "stage_pb2.Failure":
    """Return the refusal of `stage`; its reason is the error's class."""
    from services.contract._pb import stage_pb2

    return stage_pb2.Failure(stage=stage, reason=type(error).__name__, message=str(error))


def error_from_failure(failure: "stage_pb2.Failure") -> errors.ContractError:
    """Return the error that a stage's refusal stands for; an unknown one is internal."""
    kind = _KINDS.get(failure.reason, errors.InternalError)
    return kind("STAGE_REFUSED", f"{failure.stage}: {failure.message}")
