"""Fields that a config names by the path of their record, `fields: [package.module:FIELD]`: taken in before composing.

What a field brings can be chosen only once it is known, so `fields` is read before a config is composed: from the
command line, else from the user's own files. Imports neither Hydra nor pydantic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from embexp.config.folders import Folders, outline, shipped
from embexp.errors import ConfigError, Fault
from embexp.specs import fields
from embexp.system import user_code

KEY = "fields"


def take_in(
    folders: Folders,
    config_name: str,
    overrides: Sequence[str],
    refusal: Callable[[str], str],
    remedy: Callable[[str], str] = lambda path: "",
) -> Folders:
    """Takes in the fields that a config names; returns the folders of configs with those of the fields.

    Args:
        refusal: why the code of a path may not be run; "": it may.
        remedy: what to do about that.

    Raises:
        ConfigError: a path may not be imported, or leads to no field that can be used.
    """
    named = _named(folders, config_name, overrides)
    installed = {each.path for each in fields.origins() if each.installed}
    for path in [each for each in named if isinstance(each, str) and ":" in each and each not in installed]:
        if why := refusal(path):
            raise ConfigError([Fault(KEY, repr(path), why, remedy(path))])
        if faults := user_code.faults_of_function(path, KEY):
            raise ConfigError(faults)
        known = fields.named(path)
        if user_code.forget_changed(user_code.read_package(path, () if known is None else known.paths())):
            fields.remove(path)
        user_code.note_imported(user_code.read_package(path, fields.add(path).paths()))
    return replace(folders, brought=tuple(map(Path, fields.configs()))) if named else folders


def _named(folders: Folders, config_name: str, overrides: Sequence[str]) -> Sequence[Any]:
    """The value of `fields`, as far as it is a list; a value of another form is a fault that validation reports."""
    pairs = [text.lstrip("+").partition("=") for text in overrides]
    given = [value for key, _, value in pairs if key == KEY]
    if given:
        try:
            found = yaml.safe_load(given[-1])
        except yaml.YAMLError:
            return ()
    elif folders.user is None and folders.shipped == shipped():
        return ()  # none of embexp's files names one
    else:
        chosen = {key: value for key, _, value in pairs if folders.is_group(key.partition("@")[0])}
        found = outline(folders, config_name, chosen).values.get(KEY)
    return found if isinstance(found, list) else ()
