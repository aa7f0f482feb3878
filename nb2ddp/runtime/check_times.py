"""Plan the checks of a loop by the time that they take: as dense as a small share of the run's time allows."""

from nb2ddp.runtime.spot_checks import _checks

_ALLOWANCE, _SHARE = 0.3, 0.007  # seconds, and of the run's time, that all checks together may take


class _CheckTimes:
    """What the checks of one run have taken, as rank 0 has measured it: alike on every rank."""

    def __init__(self) -> None:
        self.seconds = self.elapsed = 0.0  # of all checks, and of the run since its first one
        self.start = 0  # the step in which something changed that the model may compute by

    def take(self, seconds: float, elapsed: float) -> None:
        """Count the time of the check under way, and plan the next one."""
        self.seconds, self.elapsed = self.seconds + seconds, elapsed
        _checks.gap = self.gap
        _checks.next_check = max(_checks.current, 0) + self.gap(max(_checks.current, 0))

    def begin_again(self, step: int) -> None:
        """Compare the next steps, too: one comparison may be right by chance."""
        self.start, _checks.next_check = step, min(_checks.next_check, step + 1)

    def gap(self, step: int) -> int:
        """Return after how many steps the next check comes."""
        until = (self.seconds - _ALLOWANCE) / _SHARE - self.elapsed  # seconds until there may be one more
        of_time = until * (step + 1) / max(self.elapsed, 1e-3)
        since = step - self.start
        return max(1, min(_checks.rare_gap(since), round(max(1.0 + since / 8, of_time))))


_check_times = _CheckTimes()
