"""A caller's own account over gRPC: no call names another's."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from stoilo.core.rpc import accounts_pb2 as pb
from stoilo.core.rpc import accounts_pb2_grpc
from stoilo.server.admission import tokens
from stoilo.server.admission.quotas import RateMeter
from stoilo.server.api.service import Calls, served
from stoilo.server.operations import access, accounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoilo.policies.policy import Policy
    from stoilo.server.api.service import Work
    from stoilo.server.db.records import Owner
    from stoilo.server.db.store import Store

TOKENS_PER_HOUR = 20  # new ones of an account: each is a leaf of the log
MOST_SHOWN = 1000  # the newest; old ones stay listed for ever


class AccountService(Calls, accounts_pb2_grpc.AccountServiceServicer):
    """What a token's holder sees and does of the account that it is for."""

    _check = staticmethod(tokens.check_own)
    ShowAccount = served("ShowAccount")
    IssueToken = served("IssueToken")
    RevokeToken = served("RevokeToken")

    def __init__(self, store: Store, policy: Policy, clock: Callable[[], int]) -> None:
        self._policy = policy
        self._meter = RateMeter("STO-R005", "new tokens")
        works: dict[str, Work] = {
            "ShowAccount": lambda owner, _: self._show(owner),
            "IssueToken": self._issue,
            "RevokeToken": lambda owner, asked: pb.RevokeTokenResponse(
                revoked=access.end_own(store, owner, asked.token, clock())
            ),
        }
        super().__init__(store, clock, works)

    def _show(self, owner: Owner) -> pb.ShowAccountResponse:
        facts = accounts.describe(self.store, owner.name, self._policy, self.clock())
        return pb.ShowAccountResponse(
            name=owner.name,
            group=facts.group,
            share=facts.share,
            suspended_at=facts.suspended_at,
            uses=[pb.AccountUse(**asdict(use)) for use in facts.uses],
            tokens=[
                pb.AccountToken(**asdict(one)) for one in facts.tokens[-MOST_SHOWN:]
            ],
        )

    def _issue(
        self, owner: Owner, asked: pb.IssueTokenRequest
    ) -> pb.IssueTokenResponse:
        self._meter.check(owner.account_id, TOKENS_PER_HOUR, cost=0)
        token = access.issue_own(
            self.store, owner, asked.name, asked.days, self.clock()
        )
        self._meter.charge(owner.account_id, 1)
        return pb.IssueTokenResponse(token=token)
