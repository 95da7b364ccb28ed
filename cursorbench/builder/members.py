"""What a change needs of a workspace: the members that it is about, and those that these require.

A member is a distribution with a pyproject.toml of its own below the root. Its code is imported from the
tree, as after an editable install of the whole workspace, but only where a change reaches it: what lies in
examples and test data stands in no test's way. Not for: what a member's files say (`project.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cursorbench.builder.project import Project, of_tree


def about(project: Project, paths: Iterable[str]) -> Project:
    """The project as a change of these files needs it: code of members on the import path, `changed` told.

    Members that the root requires are always there.
    """
    changed = {name for path in paths if (name := _of(project, path))}
    reached: list[Project] = []
    wanted = [project, *(project.members[name] for name in sorted(changed))]
    while wanted:
        one = wanted.pop()
        if one not in reached:
            reached.append(one)
            wanted += [project.members[name] for name in sorted(_required(one, project))]
    inside = sorted((one for one in reached if one.folder), key=lambda one: one.folder)
    return replace(
        project,
        changed=tuple(sorted(changed)),
        import_paths=(*project.import_paths, *(import_path(one) for one in inside)),
        modules=tuple(sorted({name for one in (project, *inside) for name in one.modules})),
        members={name: replace(one, imported=one in inside) for name, one in project.members.items()},
    )


def import_path(member: Project) -> str:
    """Where Python imports a member's code from."""
    first = member.import_paths[0]
    return member.folder if first == "." else f"{member.folder}/{first}"


def _of(project: Project, path: str) -> str:
    """The member that a file is of: that of the folder nearest to it; "" for none."""
    around = [one for one in project.members.values() if path.startswith(f"{one.folder}/")]
    return max(around, key=lambda one: len(one.folder)).name if around else ""


def _required(one: Project, project: Project) -> set[str]:
    """The members that one of them requires."""
    every = [one.dependencies, *one.extras.values(), *one.groups.values(), *one.files.values()]
    found = [of_tree(row, project) for requirements in every for row in requirements]
    return {about.name for about in found if about is not None} & project.members.keys()
