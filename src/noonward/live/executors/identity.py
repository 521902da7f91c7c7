"""As whom jobs run: the service's own user, or at clusters that are told so the user of whoever submitted them."""

from __future__ import annotations

import pwd
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from noonward.live.executors.protocol import Order, RefusedError

PLACE: Final = "{user}"
"""What stands for the user in a setting."""
_USER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,99}")


@dataclass(frozen=True)
class Users:
    """Users at the clusters, of those who submit jobs to the service.

    Attributes:
        of_token: User by the name of a token; a token that is not named has the user of its own name.
    """

    of_token: Mapping[str, str] = field(default_factory=dict)

    def of(self, order: Order) -> str:
        """Returns the user that a job is of.

        Raises:
            RefusedError: It has no owner, or its owner's user is the administrator or no name of a user.

        Example:
            >>> from dataclasses import replace
            >>> one = Order(token="t", job=7, name="a", command="", gpus=2, run_s=1.0, start_s=0.0, owner="ci")
            >>> Users({"ci": "robot"}).of(one), Users().of(one)
            ('robot', 'ci')
        """
        if order.user:
            return order.user
        if not order.owner:
            raise RefusedError(
                "jobs of this site are submitted as the users of those who own them, and it has no owner: submit it "
                "with a token"
            )
        user = self.of_token.get(order.owner, order.owner)
        if not _USER.fullmatch(user) or user == "root":
            raise RefusedError(
                f"jobs of this site are submitted as the users of those who own them, and {user!r} of token "
                f"{order.owner!r} is no user that may run jobs; name one under 'users' of the configuration"
            )
        return user


@dataclass(frozen=True)
class Account:
    """A user of this machine.

    Attributes:
        name: Name.
        home: Where its jobs run unless they say otherwise: its home, or ``/tmp`` where that is no folder.
        variables: What a login sets: HOME, USER, LOGNAME and SHELL.
    """

    name: str
    home: Path
    variables: Mapping[str, str]

    @classmethod
    def of(cls, user: str) -> Account:
        """Returns a user's account.

        Raises:
            RefusedError: This machine does not know the user, or it is the administrator.
        """
        try:
            found = pwd.getpwnam(user)
        except KeyError as error:
            raise RefusedError(
                f"the machine of the service does not know the user {user!r}, whom the job would be submitted as"
            ) from error
        if found.pw_uid == 0:
            raise RefusedError(f"the user {user!r} is an administrator of the machine, as whom no job is submitted")
        home = Path(found.pw_dir)
        variables = {"HOME": found.pw_dir, "USER": user, "LOGNAME": user, "SHELL": found.pw_shell or "/bin/sh"}
        return cls(user, home if home != Path("/") and home.is_dir() else Path("/tmp"), variables)


def put_in(words: Sequence[str], user: str) -> tuple[str, ...]:
    """Returns words with a user put in.

    Example:
        >>> put_in(("sudo", "-n", "-u", "{user}", "--"), "ada")
        ('sudo', '-n', '-u', 'ada', '--')
    """
    return tuple(word.replace(PLACE, user) for word in words)
