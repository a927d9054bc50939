"""The table of keys: descriptions, warnings, checks of keys that depend on each other."""

from __future__ import annotations

import pickle

import pytest

from fluss_client.config import OPTIONS, Config
from fluss_client.errors import ConfigError


@pytest.mark.parametrize("key", OPTIONS)
def test_every_key_has_one_sentence_that_says_what_it_does(key: str) -> None:
    description = OPTIONS[key].description
    assert description[0].isupper()
    assert description.endswith(".")
    assert ". " not in description
    assert "|" not in description, "it would end the cell of the table in the docs"


@pytest.mark.parametrize(
    ("key", "value"),
    [("writer.dynamic-batch-size.enabled", "false"), ("writer.dynamic-batch-size-min", "1mb")],
)
def test_a_key_without_effect_is_accepted_with_a_warning(key: str, value: str) -> None:
    with pytest.warns(UserWarning, match=f"{key} has no effect: writer.batch-size") as caught:
        config = Config({key: value})
    with pytest.warns(UserWarning, match="has no effect") as set_later:
        setattr(config, OPTIONS[key].name, value)
    for warning in (*caught, *set_later):
        assert warning.filename == __file__, "the warning names the line that sets the key"
    assert config.copy().to_dict() == config.to_dict()


def test_keys_without_effect_are_refused_like_others_when_they_are_wrong() -> None:
    with pytest.raises(ConfigError, match="true or false"):
        Config({"writer.dynamic-batch-size.enabled": "maybe"})


def test_the_default_configuration_warns_of_nothing() -> None:
    Config().check()
    assert pickle.loads(pickle.dumps(Config({"retry-backoff": "5ms"}))).retry_backoff_ms == 5


def test_the_first_pause_is_not_above_the_longest() -> None:
    with pytest.raises(ConfigError, match="retry-backoff must not exceed retry-backoff-max"):
        Config({"retry-backoff": "3s"}).check()
