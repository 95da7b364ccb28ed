"""What kind of work a request is: by its verb, by what is said, in several languages; never an error."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.distill import work
from stages.distill.work import kind_of_work

KINDS = {one["name"] for one in tomllib.loads(Path(work.__file__).with_name("work.toml").read_text())["kind"]}


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        ("rename total to amount", "rename"),
        ("total should be called amount", "rename"),
        ("change the limit to 30", "change"),
        ("the limit should be 30", "change"),
        ("make it nicer", "change"),
        ("make a page for it", "create"),
        ("Great, works now. Also, can you please hide the legend?", "change"),
        ("fix the off-by-one", "fix"),
        ("this is broken", "fix"),
        ("the third player is not showing. can you check the docs?", "fix"),
        ("can you check this error?", "fix"),
        ('Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 3', "fix"),
        ("what does this do?", "question"),
        ("how can i make a new env using conda?", "question"),
        ("/ask is there a way to know the user's language", "question"),
        ("show me the list of tables", "question"),
        ("why is it failing?", "fix"),
        ("add a docstring", "document"),
        ("add a section to README.md", "document"),
        ("write a test for total", "test"),
        ("add a flag --json", "create"),
        ("I want you to implement the plan", "create"),
        ("extract the loop into a function", "refactor"),
        ("remove the cache", "remove"),
        ("run the build and tell me if it compiles", "run"),
        ("git push -u origin main", "run"),
        ("commit and push", "run"),
        ("let's start implementing the next block", "create"),
        ("yes", "reply"),
        ("ok, go ahead!", "reply"),
        ("B", "reply"),
        ("1, 3", "reply"),
        ("yes\nand drop the old table", "remove"),
        ("total is off", "vague"),
        ("total: 3 -> 5", "vague"),
        ("```py\nx = 1\n```", "none"),
        ("", "none"),
    ],
)
def test_kinds_of_work(request_: str, kind: str) -> None:
    assert kind_of_work([request_]) == [kind]


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        ("评论审核有报错", "fix"),
        ("左上角改成产品", "change"),
        ("帮我加一个按钮", "create"),
        ("解释这段代码", "question"),
        ("这样对吗？", "question"),
        ("继续", "reply"),
        ("このボタンが動きません", "fix"),
        ("README を作成して", "document"),
        ("テンプレートに一行を追加して", "create"),
        ("설명해줘", "question"),
        ("버그를 고쳐줘", "fix"),
        ("исправь вход через почту", "fix"),
        ("пожалуйста, добавь кнопку", "create"),
        ("запусти сервер", "run"),
        ("да", "reply"),
        ("ajoute un bouton", "create"),
        ("écris un script de test", "test"),
        ("ça ne marche pas", "fix"),
        ("ändere die Farbe", "change"),
        ("das funktioniert nicht", "fix"),
        ("arregla el inicio de sesión", "fix"),
        ("crea una página de contacto", "create"),
        ("grazie, continua", "reply"),
        ("adicione um campo", "create"),
        ("thêm cột giá vào bảng", "create"),
        ("voeg een knop toe", "create"),
        ("kun je de inlogpagina repareren", "fix"),
        ("de knop werkt niet", "fix"),
        ("leg uit hoe dit werkt", "question"),
        ("prosím přidej tlačítko", "create"),
        ("proč to nefunguje", "fix"),
        ("usuń nieużywane pliki", "remove"),
        ("zmień kolor nagłówka", "change"),
        ("tak, kontynuuj", "reply"),
        ("tolong perbaiki halaman masuk", "fix"),
        ("jalankan server", "run"),
        ("bu sayfaya bir buton ekle", "create"),
        ("neden çalışmıyor", "fix"),
        ("devam et", "reply"),
    ],
)
def test_kinds_of_work_in_other_languages(request_: str, kind: str) -> None:
    assert kind_of_work([request_]) == [kind]


def test_the_words_are_read_in_any_locale() -> None:
    """Where that is not UTF-8, `rtrl distill` ended as a bug, or took the words for others."""
    code = (
        "from stages.distill import work; print(*work.kind_of_work(['remove it', chr(0x5220) + chr(0x9664)]))"
    )
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=os.environ | plain, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("remove remove", "")


def test_each_request_by_itself_and_in_its_place() -> None:
    requests = ["yes", "", "fix it", "```\nx\n```", "继续", "add a page"]
    assert kind_of_work(requests) == [kind_of_work([one])[0] for one in requests]


def test_no_verb_is_a_word_that_may_stand_before_one() -> None:
    found = tomllib.loads(Path(work.__file__).with_name("work.toml").read_text())
    verbs = [verb for one in found["kind"] for verb in one["verbs"].split()]
    assert not {*verbs} & {*found["politeness"].split()}
    assert len(verbs) == len(set(verbs))  # or the later kind of the two would never have it


@given(st.lists(st.text(), max_size=4))
def test_any_text_has_a_kind(requests: list[str]) -> None:
    found = kind_of_work(requests)
    assert len(found) == len(requests)
    assert {*found} <= KINDS | {work.VAGUE, work.NONE}
