"""Texts as sequences of numbers: TensorFlow Federated's vocabularies, and that of LEAF.

A sequence of TensorFlow Federated has length + 1 places. Its first `length` are a sample, its last `length` are the
labels: at every place the next character or word. V words or characters have the numbers 1 to V. 0 fills a sequence up
and is the label that nobody learns; V + 1 is what is not in the vocabulary, V + 2 the beginning, V + 3 the end.
"""

import string
from pathlib import Path

import numpy as np

from .errors import ConfigError, DataError

# TensorFlow Federated's vocabulary of Shakespeare, in its order.
CHARACTERS = ("dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r")
# LEAF's, in ASCII's order.
LEAF_CHARACTERS = f"\n !\"&'(),-.{string.digits}:;>?{string.ascii_uppercase}[]{string.ascii_lowercase}}}"
SPECIAL = 4  # pad, unknown, beginning, end
WORD_PLACES = 20  # of Stack Overflow, as Reddi et al. (2021) have it

_LEAF_TABLE = np.full(128, -1, np.int16)
_LEAF_TABLE[[ord(one) for one in LEAF_CHARACTERS]] = np.arange(len(LEAF_CHARACTERS))
_TABLE = np.full(256, len(CHARACTERS) + 1, np.int16)
_TABLE[[ord(one) for one in CHARACTERS]] = np.arange(1, len(CHARACTERS) + 1)


def leaf_numbers(texts, where):
    """[n, length] numbers of the characters of texts of one length, from 0."""
    if not all(isinstance(text, str) for text in texts):
        raise DataError(f"{where}: not all samples are texts; give one kind of data set")
    lengths = {len(text) for text in texts}
    if len(lengths) > 1:
        raise DataError(f"{where}: texts have {min(lengths)} to {max(lengths)} characters; give texts of one length")
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    numbers = np.where(codes < 128, _LEAF_TABLE[np.minimum(codes, 127)], -1)
    if (numbers < 0).any():
        raise DataError(f"{where}: holds {chr(codes[int((numbers < 0).argmax())])!r}, which is not among LEAF's "
                        f"{len(LEAF_CHARACTERS)} characters; replace it before LEAF's preprocessing")
    return numbers.astype(np.int16).reshape(len(texts), -1)


def _split(sequences):
    return sequences[:, :-1], sequences[:, 1:]


def character_sequences(snippets, length):
    """(samples [n, length], labels [n, length]) of snippets, each cut into sequences of its own."""
    unknown = len(CHARACTERS) + 1
    pieces = []
    for snippet in snippets:
        text = snippet if isinstance(snippet, bytes) else str(snippet).encode()
        numbers = np.concatenate([[unknown + 1], _TABLE[np.frombuffer(text, np.uint8)], [unknown + 2]])
        pieces.append(np.pad(numbers, (0, -len(numbers) % (length + 1))).reshape(-1, length + 1))
    sequences = np.concatenate(pieces) if pieces else np.zeros((0, length + 1))
    return _split(sequences.astype(np.int16))


class Words:
    """A vocabulary: the first `count` words of a file of TensorFlow Federated, or of a list."""

    def __init__(self, source, count):
        try:
            if isinstance(source, (str, Path)):
                with open(source, encoding="utf-8") as file:
                    source = [line.split()[0] for line in file if line.strip()]
        except (OSError, ValueError) as error:
            raise DataError(f"{source} cannot be read: {error}; give stackoverflow.word_count") from error
        words = list(source)[:count]
        if len(words) < count or len(set(words)) < count:
            raise ConfigError(f"words = {count}, but the vocabulary has {len(set(words))} different ones; lower words")
        self.unknown = count + 1
        self.number = {word: place for place, word in enumerate(words, 1)}
        self.classes = count + SPECIAL
        self.dtype = np.int16 if self.classes <= np.iinfo(np.int16).max else np.int32

    def sequences(self, sentences, length):
        """(samples [n, length], labels [n, length]) of sentences, whose words have one blank between them.

        Words behind the first `length` are left out; a shorter sentence has an end.
        """
        get, unknown = self.number.get, self.unknown
        found = np.zeros((len(sentences), length + 1), self.dtype)
        for row, sentence in zip(found, sentences):
            text = sentence.decode() if isinstance(sentence, bytes) else str(sentence)
            numbers = [unknown + 1, *(get(word, unknown) for word in text.split()[:length])]
            if len(numbers) <= length:
                numbers.append(unknown + 2)
            row[:len(numbers)] = numbers
        return _split(found)
