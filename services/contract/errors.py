"""The errors of the contract, each with the name of its canonical gRPC code."""

from typing import ClassVar


class ContractError(ValueError):
    """Report a broken contract: what was asked, the limit, what to do.

    Args    reason: upper snake case, stable, for machines. message: for people; holds no
            user content. field: dotted path of the field at fault, or empty.
    """

    code: ClassVar[str] = "INVALID_ARGUMENT"

    def __init__(self, reason: str, message: str, field: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.field = field

    def __reduce__(self) -> tuple[type["ContractError"], tuple[str, str, str]]:
        return type(self), (self.reason, self.message, self.field)

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class InvalidField(ContractError):
    """Refuse a field's value."""


class UnsupportedError(ContractError):
    """Refuse what this build does not do, by name."""

    code = "UNIMPLEMENTED"


class PreconditionError(ContractError):
    """Refuse what the current configuration cannot do."""

    code = "FAILED_PRECONDITION"


class CheckpointError(ContractError):
    """Refuse a checkpoint that is not what it says."""

    code = "FAILED_PRECONDITION"


class StaleEpochError(ContractError):
    """Refuse a message of another wiring."""

    code = "ABORTED"


class StaleSlotError(ContractError):
    """Refuse a (slot, generation) that was handed on."""

    code = "ABORTED"


class RepeatedCycleError(ContractError):
    """Refuse a cycle or message number that is not the next one."""

    code = "ABORTED"


class ExhaustedError(ContractError):
    """Refuse work for which there is no room now."""

    code = "RESOURCE_EXHAUSTED"


class TooLargeError(ExhaustedError):
    """Refuse a message above its byte limit."""


class UnavailableError(ContractError):
    """Refuse work while starting, draining or restarting."""

    code = "UNAVAILABLE"


class NotFoundError(ContractError):
    """Report an unknown name."""

    code = "NOT_FOUND"


class DuplicateError(ContractError):
    """Refuse an id that is alive."""

    code = "ALREADY_EXISTS"


class DeadlineError(ContractError):
    """Report that the time limit has passed."""

    code = "DEADLINE_EXCEEDED"


class CancelledError(ContractError):
    """Report that the caller went away."""

    code = "CANCELLED"


class UnauthenticatedError(ContractError):
    """Refuse a caller without a valid token."""

    code = "UNAUTHENTICATED"


class ForbiddenError(ContractError):
    """Refuse a caller whose token does not allow the call."""

    code = "PERMISSION_DENIED"


class CorruptStateError(ContractError):
    """Report state that is proven wrong."""

    code = "DATA_LOSS"


class IntegrityError(ContractError):
    """Report that a pool or table broke its own invariant."""

    code = "INTERNAL"


class InternalError(ContractError):
    """Report a defect of this program."""

    code = "INTERNAL"
