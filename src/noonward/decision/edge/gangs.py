"""Gangs of servers: which fit, which are reused, which are dissolved. Engine and lookahead rules call the same code.

A gang is a set of servers launched together, named by its lowest server. It keeps its model loaded while all its
servers stay together: a task that needs exactly its size and its model finds it loaded (EAT, Sec. IV.A.4). A new gang
is formed of idle servers; every gang that loses a server is dissolved, and its other servers count as empty too.
"""

from __future__ import annotations

from noonward.arrays import Records
from noonward.compiled import kernel
from noonward.decision.edge.view import LEAST_FRAGMENTATION, NOBODY

_PICKED = -2


@kernel(inline=True, allocates=False)
def idle_servers(server_N: Records, now_t: int) -> int:
    """Returns how many servers are idle."""
    idle = 0
    for n in range(server_N.shape[0]):
        if server_N[n].free_t <= now_t:
            idle += 1
    return idle


@kernel(inline=True, allocates=False)
def idle_gang(server_N: Records, now_t: int, size: int, model: int) -> int:
    """Returns the first idle gang of exactly a size that has a model loaded, or NOBODY."""
    for n in range(server_N.shape[0]):
        s = server_N[n]
        if s.gang == n and s.size == size and s.model == model and s.free_t <= now_t:
            return n
    return NOBODY


@kernel(inline=True, allocates=False)
def dissolve(server_N: Records, gang: int) -> None:
    """Leaves all servers of a gang without gang and model."""
    for n in range(server_N.shape[0]):
        if server_N[n].gang == gang:
            server_N[n].gang = NOBODY
            server_N[n].size = 0
            server_N[n].model = NOBODY


@kernel(allocates=False)
def _least_missed(server_N: Records, now_t: int, needed: int) -> int:
    """Returns the idle gang to break up: the largest not larger than what is needed, else the smallest larger one."""
    best = NOBODY
    for n in range(server_N.shape[0]):
        s = server_N[n]
        if s.gang != n or s.free_t > now_t:
            continue
        if best == NOBODY:
            best = n
            continue
        held = server_N[best].size
        if s.size <= needed:
            if held > needed or s.size > held:
                best = n
        elif held > needed and s.size < held:
            best = n
    return best


@kernel(inline=True, allocates=False)
def _pick(server_N: Records, now_t: int, needed: int, gangless: bool) -> int:
    """Marks idle servers as picked, lowest first, until enough; returns how many are still needed.

    Args:
        server_N: Servers.
        now_t: Now.
        needed: Servers needed.
        gangless: Take only servers without a gang; else dissolve the gangs they belong to.
    """
    for n in range(server_N.shape[0]):
        if needed == 0:
            break
        s = server_N[n]
        if s.free_t > now_t or s.gang == _PICKED or (gangless and s.gang != NOBODY):
            continue
        if s.gang != NOBODY:
            dissolve(server_N, s.gang)
        server_N[n].gang = _PICKED
        needed -= 1
    return needed


@kernel(inline=True, allocates=False)
def occupy(server_N: Records, now_t: int, gang: int, size: int, model: int, until_t: int, choice: int) -> int:
    """Launches on a gang, or forms one; returns the gang.

    Args:
        server_N: Servers; changed.
        now_t: Now.
        gang: Idle gang that is reused, or NOBODY to form one.
        size: Servers of the gang; as many must be idle.
        model: Model that it has loaded from now on.
        until_t: Tick at which its servers are idle again.
        choice: LOWEST or LEAST_FRAGMENTATION.
    """
    if gang == NOBODY:
        needed = size
        if choice == LEAST_FRAGMENTATION:
            needed = _pick(server_N, now_t, needed, True)
            while needed > 0:
                dissolve(server_N, _least_missed(server_N, now_t, needed))
                needed = _pick(server_N, now_t, needed, True)
        else:
            _pick(server_N, now_t, needed, False)
        for n in range(server_N.shape[0]):
            if server_N[n].gang == _PICKED:
                if gang == NOBODY:
                    gang = n
                server_N[n].gang = gang
                server_N[n].size = size
                server_N[n].model = model
    for n in range(server_N.shape[0]):
        if server_N[n].gang == gang:
            server_N[n].free_t = until_t
    return gang


@kernel(inline=True, allocates=False)
def next_idle_t(server_N: Records, now_t: int) -> int:
    """Returns the next tick at which a busy server becomes idle, or -1 if all are idle."""
    soonest = -1
    for n in range(server_N.shape[0]):
        free_t = server_N[n].free_t
        if free_t > now_t and (soonest < 0 or free_t < soonest):
            soonest = free_t
    return soonest
