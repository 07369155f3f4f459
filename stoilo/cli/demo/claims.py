"""What the demo says it has shown, and whether it has."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.table import Table


@dataclass(frozen=True, slots=True)
class Claim:
    """One printed sentence and the evidence that was checked for it."""

    title: str
    holds: bool
    evidence: str


@dataclass
class ClaimBook:
    """Collects claims in the order they were checked."""

    claims: list[Claim] = field(default_factory=list)

    def check(self, title: str, holds: bool, evidence: str) -> Claim:
        """Record a claim; a false one fails the demo but does not stop it."""
        claim = Claim(title, bool(holds), evidence)
        self.claims.append(claim)
        return claim

    @property
    def all_hold(self) -> bool:
        """Whether there is at least one claim and every one holds."""
        return bool(self.claims) and all(claim.holds for claim in self.claims)


def render_claims(claims: list[Claim]) -> Table:
    """Return the closing table."""
    table = Table(title="what was shown", title_justify="left", show_lines=False)
    table.add_column("", width=3)
    table.add_column("claim", ratio=2, overflow="fold")
    table.add_column("seen", ratio=3, overflow="fold")
    for claim in claims:
        mark = "[green]✓[/]" if claim.holds else "[red]✗[/]"
        table.add_row(mark, claim.title, claim.evidence)
    return table
