"""What is known of a release that a recipe describes: how it is launched, what was published, what was measured."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from graft.sources import Digest, Sentence
from graft.yamlio import Model, grammar

EnvKey = Annotated[str, grammar(r"[A-Za-z_][A-Za-z0-9_]*", "the name of a variable")]
#: Nothing that a Dockerfile or a shell would expand or end a word at.
EnvValue = Annotated[
    str,
    grammar(
        r"[A-Za-z0-9_./:,;=+@%^~ -]*",
        "taken: letters, digits, spaces, and _ . / : , ; = + @ % ^ ~ -",
        1000,
        shown=False,
    ),
]
Argument = Annotated[str, grammar(r"[A-Za-z0-9_./:,=+@%^~-]+", "one argument: no space, quote, $ or other shell word")]
ModelName = Annotated[str, grammar(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9._-]+", "a model such as zai-org/GLM-5")]
_REPOSITORY = r"(?:[a-z0-9.-]+(?::[0-9]{1,5})?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*"
TagReference = Annotated[
    str, grammar(rf"{_REPOSITORY}:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}}", "a tagged reference such as name/image:tag")
]
#: A reference with placeholders in its tag.
ReferenceTemplate = Annotated[
    str,
    grammar(rf"{_REPOSITORY}:[A-Za-z0-9_{{][A-Za-z0-9_{{}}.-]*", "a template such as name/image:{recipe}-{vllm.short}"),
]
Samples = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Launch(Model):
    """How the image is served: nothing in its environment. model: what it was written for, as `vllm serve` is given it.

    That of `launch` is a label of the image, without the model.
    """

    note: Sentence | None = None
    model: ModelName | None = None
    args: tuple[Argument, ...] = Field(default=(), strict=False)
    env: dict[EnvKey, EnvValue] = Field(default_factory=dict)

    def words(self) -> str:
        """`A=1 B=2 --flag value`, as one types it; the grammar leaves nothing to quote but spaces in a value."""
        env = [f'{key}="{value}"' if " " in value else f"{key}={value}" for key, value in sorted(self.env.items())]
        return " ".join([*env, *self.args])


class Profile(Launch):
    """One way to launch the image among several. arches: where it holds; everywhere when left out."""

    arches: tuple[str, ...] | None = Field(default=None, strict=False, min_length=1)

    def on(self, arch: str) -> bool:
        return self.arches is None or arch in self.arches


class Published(Model):
    """What was published of this recipe: `tag` must come out of one of its templates."""

    tag: TagReference | None = None
    digest: Digest | None = None

    @model_validator(mode="after")
    def _anything(self) -> Published:
        if self.tag is None and self.digest is None:
            raise ValueError("give a tag, a digest or both")
        return self


class Run(Model):
    """Tokens per second over some samples."""

    samples: Samples
    mean: Rate | None = None
    median: Rate | None = None
    min: Rate | None = None
    max: Rate | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Run:
        middle = [value for value in (self.mean, self.median) if value is not None]
        if not middle:
            raise ValueError("give a mean or a median")
        for value in middle:
            if (self.min is not None and value < self.min) or (self.max is not None and value > self.max):
                raise ValueError(f"{value} does not lie between min {self.min} and max {self.max}")
        return self


class Control(Run):
    """The same measurement of another image on the same host: what a throughput has to be compared with."""

    image: Sentence


class Measured(Run):
    """The release's throughput, with its control. cjk: stray CJK characters in the output."""

    where: Sentence
    cjk: int | None = Field(default=None, ge=0)
    control: Control | None = None
