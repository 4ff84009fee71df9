"""Data sets of several forms with a planted truth, made by a formula and a seed: none was used to choose a default."""

from __future__ import annotations

from pathlib import Path

import numpy as np

RANK = 4


def _factors(random: np.random.Generator, users: int, items: int) -> tuple[np.ndarray, ...]:
    """Biases and vectors; a dot product has a variance of 1."""
    sizes = ((users,), (items,), (users, RANK), (items, RANK))
    a, b, u, v = (random.standard_normal(size) for size in sizes)
    return a, b, u / RANK**0.25, v / RANK**0.25


def _zipf(random: np.random.Generator, count: int, size: int, exponent: float) -> np.ndarray:
    weights = 1 / (1 + np.arange(count)) ** exponent
    return random.choice(random.permutation(count), size, p=weights / weights.sum())


def ratings(
    file: Path, *, examples: int, users: int, items: int, scale: tuple[float, float], step: float, seed: int
) -> Path:
    """Writes a CSV of ratings, `user,item,rating`, of which biases and vectors explain about two thirds.

    Args:
        file: to write.
        examples: lines.
        users: at most so many.
        items: at most so many.
        scale: the lowest and the highest rating.
        step: between neighbouring ratings.
        seed: of the truth.
    """
    random = np.random.default_rng(seed)
    a, b, u, v = _factors(random, users, items)
    user, item = _zipf(random, users, examples, 0.5), _zipf(random, items, examples, 0.8)
    truth = 0.5 * a[user] + 0.5 * b[item] + 0.6 * np.einsum("ij,ij->i", u[user], v[item])
    value = truth + 0.6 * random.standard_normal(examples)
    low, high = scale
    rating = (low + high) / 2 + (high - low) / 5 * value + (high - low) / 10
    rating = np.clip(np.round(rating / step) * step, low, high)
    lines = (f"u{i},i{j},{y:g}\n" for i, j, y in zip(user, item, rating, strict=True))
    file.write_text("user,item,rating\n" + "".join(lines))
    return file


def clicks(file: Path, *, examples: int, users: int, items: int, rate: float, seed: int) -> Path:
    """Writes a CSV of clicks, `user,item,history,click`; a history holds items like those that the user likes.

    Args:
        file: to write.
        examples: lines.
        users: at most so many.
        items: at most so many.
        rate: of clicks, about.
        seed: of the truth.
    """
    random = np.random.default_rng(seed)
    a, b, u, v = _factors(random, users, items)
    user, item = _zipf(random, users, examples, 0.9), _zipf(random, items, examples, 0.9)
    logit = a[user] + b[item] + 1.2 * np.einsum("ij,ij->i", u[user], v[item])
    low, high = -20.0, 20.0
    for _ in range(50):  # the offset that gives the rate, by bisection
        offset = (low + high) / 2
        low, high = (low, offset) if np.mean(1 / (1 + np.exp(-logit - offset))) > rate else (offset, high)
    clicked = random.random(examples) < 1 / (1 + np.exp(-logit - offset))
    liked = np.argsort(-(u @ v.T) + random.gumbel(size=(users, items)), axis=1)[:, :8]
    lengths = random.integers(0, 9, examples)
    lines = (
        f"u{i},i{j},{' '.join(f'i{k}' for k in liked[i, :n])},{int(y)}\n"
        for i, j, n, y in zip(user, item, lengths, clicked, strict=True)
    )
    file.write_text("user,item,history,click\n" + "".join(lines))
    return file


def texts(file: Path, *, examples: int, classes: int, words: int, length: int, share: float, seed: int) -> Path:
    """Writes labelled texts, `label<TAB>text`: words are common to all classes, or typical of one.

    Args:
        file: to write.
        examples: lines.
        classes: how many; the first ones are more frequent.
        words: of the vocabulary.
        length: mean number of words in a text.
        share: of the words of a text that are typical of its class.
        seed: of the truth.
    """
    random = np.random.default_rng(seed)
    label = _zipf(random, classes, examples, 0.5)
    typical = random.integers(0, words, (classes, max(20, words // (4 * classes))))
    lines = []
    for each in label:
        size = max(3, random.poisson(length))
        common = _zipf_fast(random, words, size)
        own = typical[each, _zipf_fast(random, typical.shape[1], size)]
        chosen = np.where(random.random(size) < share, own, common)
        lines.append(f"c{each}\t{' '.join(f'w{word}' for word in chosen)}\n")
    file.write_text("".join(lines))
    return file


def corpus(file: Path, *, sentences: int, topics: int, words: int, length: int, seed: int) -> Path:
    """Writes a text per line, for skip-gram: all its words are of one topic, or of a few common ones.

    Args:
        file: to write.
        sentences: lines.
        topics: how many.
        words: of the vocabulary, without some common ones.
        length: words in a line.
        seed: of the truth.
    """
    random = np.random.default_rng(seed)
    of_topic = random.permutation(words).reshape(topics, -1)
    lines = []
    for topic in random.integers(0, topics, sentences):
        own = of_topic[topic, _zipf_fast(random, of_topic.shape[1], length)]
        common = random.integers(0, 20, length)
        names = [f"the{c}" if r < 0.3 else f"w{w}" for r, w, c in zip(random.random(length), own, common, strict=True)]
        lines.append(" ".join(names) + "\n")
    file.write_text("".join(lines))
    return file


def liked(file: Path, *, users: int, items: int, groups: int, each: int, seed: int) -> Path:
    """Writes a CSV of interactions, `user,item,time`: a user mostly takes items of one group, popular ones more often.

    Args:
        file: to write.
        users: how many.
        items: how many.
        groups: into which users and items are divided.
        each: items of a user, about.
        seed: of the truth.
    """
    random = np.random.default_rng(seed)
    group = random.integers(0, groups, items)
    popularity = 1 / (1 + random.permutation(items)) ** 0.7
    lines = []
    for user in range(users):
        weights = popularity * np.where(group == user % groups, 1.0, 0.03)
        count = min(items // 2, max(4, random.poisson(each)))
        for item in random.choice(items, count, replace=False, p=weights / weights.sum()):
            lines.append(f"u{user},i{item},{random.integers(10**6)}\n")
    file.write_text("user,item,time\n" + "".join(lines))
    return file


def _zipf_fast(random: np.random.Generator, count: int, size: int) -> np.ndarray:
    """Ranks below `count`, about p ~ 1 / (rank + 1), by inversion."""
    ranks: np.ndarray = np.exp(random.random(size) * np.log(count + 1)) - 1
    return ranks.astype(np.int64)


def graph(folder: Path, *, entities: int, groups: int, triples: int, seed: int) -> Path:
    """Writes a knowledge graph whose relations lead from each group of entities to another one.

    Args:
        folder: to make.
        entities: how many.
        groups: into which they are divided.
        triples: about so many; a tenth tests, a tenth validates.
        seed: of the truth.
    """
    random = np.random.default_rng(seed)
    group = random.integers(0, groups, entities)
    leads = np.stack([random.permutation(groups) for _ in range(6)])
    members = [np.flatnonzero(group == each) for each in range(groups)]
    head, relation = random.integers(0, entities, triples), random.integers(0, 6, triples)
    tail = np.array([random.choice(members[leads[r, group[h]]]) for h, r in zip(head, relation, strict=True)])
    lines = np.unique(np.stack([head, relation, tail], axis=1), axis=0)
    random.shuffle(lines)
    folder.mkdir(parents=True, exist_ok=True)
    tenth = len(lines) // 10
    for part, some in {"test": lines[:tenth], "valid": lines[tenth : 2 * tenth], "train": lines[2 * tenth :]}.items():
        (folder / f"{part}.txt").write_text("".join(f"e{h}\tr{r}\te{t}\n" for h, r, t in some))
    return folder
