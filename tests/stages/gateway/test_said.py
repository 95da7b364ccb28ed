"""What a request says of itself, without a gateway: consent from three sides, names at their bounds."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from stages.gateway.attribution import Who, attribute, attribute_resource, check_name, text_of
from stages.gateway.errors import ApiError
from stages.gateway.key_file import ApiKey

KEY = ApiKey(id="k1", name="ide", sha256="", created="")
NOBODY = Who("ann", "", "", None, False)


def said(key: ApiKey = KEY, body: Any = None, clock: bool = False, **headers: str | bytes | None) -> Who:
    sent = [
        (f"x-rtrl-{name.replace('_', '-')}".encode(), value.encode() if isinstance(value, str) else value)
        for name, value in headers.items()
        if value is not None
    ]
    return attribute({"headers": sent}, body or {}, key, client_clock=clock)


@pytest.mark.parametrize(("key", "header", "metadata"), list(product([False, True], *[[None, "0", "1"]] * 2)))
def test_consent_is_what_nobody_of_three_takes_back(
    key: bool, header: str | None, metadata: str | None
) -> None:
    body = {"metadata": {} if metadata is None else {"rtrl_no_train": metadata}}
    of = ApiKey(id="k", name="n", sha256="", created="", no_train=key)
    assert said(of, body, no_train=header).no_train == (key or "1" in (header, metadata))


@pytest.mark.parametrize(("before", "told"), list(product([False, True], [None, "0", "1", True, False])))
def test_a_resource_takes_consent_back_and_never_gives_it(before: bool, told: Any) -> None:
    resource = {"rtrl.session": "s2"} | ({} if told is None else {"rtrl.no_train": told})
    who = Who("ann", "s1", "", None, before)
    assert attribute_resource(resource, who) == who._replace(no_train=before or told in ("1", True))


def test_a_resource_names_its_user() -> None:
    assert attribute_resource({"rtrl.user": "bob", "rtrl.at": "never"}, NOBODY).user == "bob"
    assert attribute_resource({"user": "bob", "rtrl_user": "bob"}, NOBODY) == NOBODY
    with pytest.raises(ApiError) as caught:
        attribute_resource({"rtrl.no_train": "perhaps"}, NOBODY)
    assert caught.value.param == "rtrl.no_train"


def test_whose_it_is_without_a_word_of_it() -> None:
    assert (
        said().user == said(body={"user": ""}).user == said(body={"metadata": {"rtrl_user": ""}}).user == "k1"
    )
    assert said(body={"user": "carol"}).user == "carol"
    assert said(body={"user": "carol", "metadata": {"rtrl_user": "bob"}}).user == "bob"
    assert said(body={"metadata": {"rtrl_user": "bob"}}, user="ann").user == "ann"
    assert said(user="", unknown="x", body={"user": "carol"}).user == "carol"
    other = attribute({"headers": [(b"x-othe-user", b"ann")]}, {}, KEY, client_clock=False)
    assert other == said() == Who("k1", "", "", None, False)
    named = said(session="s", body={"metadata": {"rtrl_episode": "e"}}, group="g")
    assert (named.session, named.episode, named.group) == ("s", "e", "g")


def test_when_it_was_by_a_clients_clock() -> None:
    assert said(clock=True, at="100").at == 100_000
    assert (said(at="100").at, said(clock=True).at) == (None, None)


@pytest.mark.parametrize(
    ("body", "headers", "param"),
    [
        ({}, {"user": "a" * 201}, "X-Rtrl-User"),
        ({"user": 5}, {}, "user"),
        ({"metadata": ["rtrl_user"]}, {}, "metadata"),
        ({"metadata": {"rtrl_no_train": ""}}, {}, "metadata.rtrl_no_train"),
        ({"metadata": {"rtrl_no_train": 2}}, {}, "metadata.rtrl_no_train"),
        ({}, {"no_train": ""}, "X-Rtrl-No-Train"),
        ({}, {"session": b"\xff"}, "X-Rtrl-Session"),
        ({}, {"at": "noon"}, "X-Rtrl-At"),
    ],
)
def test_what_is_wrong_is_refused_where_it_stands(
    body: dict[str, Any], headers: dict[str, Any], param: str
) -> None:
    with pytest.raises(ApiError) as caught:
        said(body=body, clock=True, **headers)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert said(user="a" * 200).user == "a" * 200
    for name in ("", "a\n"):
        with pytest.raises(ApiError):
            check_name(name, "type")


def test_a_text_is_of_parts_that_have_one() -> None:
    assert text_of(["a", {"text": 5}, {"text": "b"}]) == "b"
