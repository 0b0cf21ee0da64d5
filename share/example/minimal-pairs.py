"""Makes minimal-pairs.jsonl: 200 pairs of sentences that differ in one word, as BLiMP has them.

    python3 minimal-pairs.py >minimal-pairs.jsonl

Only one of the two sentences is grammatical, because a word agrees with another one at a distance. The
sentence also has a noun of the other number. The key `phenomenon` names the kind of agreement,
`distance` the number of words from the differing word to the one that it agrees with. All words are in
the vocabulary of the demonstration, and punctuation stands apart as in its text.
"""

import json

# Singular, plural, and the word with which the singular refers to itself.
PEOPLE = [
    ("sister", "sisters", "herself"), ("gentleman", "gentlemen", "himself"), ("lady", "ladies", "herself"),
    ("brother", "brothers", "himself"), ("daughter", "daughters", "herself"), ("son", "sons", "himself"),
    ("mother", "mothers", "herself"), ("father", "fathers", "himself"), ("woman", "women", "herself"),
    ("man", "men", "himself")]
THINGS = [
    ("letter", "letters"), ("house", "houses"), ("room", "rooms"), ("horse", "horses"), ("carriage", "carriages"),
    ("book", "books"), ("window", "windows"), ("door", "doors"), ("tree", "trees"), ("garden", "gardens")]
VERBS = [("was", "were"), ("is", "are"), ("has been", "have been")]
PREPOSITIONS = ["near", "with", "by", "before"]
DEEDS = ["saw", "knew", "expected", "visited", "followed"]
STATES = ["very happy", "quite alone", "much surprised", "rather tired", "extremely kind", "often ill", "not pleased"]
FAULTS = ["could never forgive", "had always admired", "would not blame", "meant to deceive"]
GRADES = ["very good", "very large", "very pretty", "very fine"]
SIZES = ["little", "old"]


def pairs():
    """Yields phenomenon, distance, a sentence with {} for a word, the right word and the wrong one."""
    for i in range(40):
        number = i % 2  # of the word that decides: 0 is singular
        subject, nearer = PEOPLE[i // 2 % 10], PEOPLE[(i // 2 + 3 + i // 20) % 10]
        people = f"the {subject[number]} {{}} the {nearer[1 - number]}"
        thing = THINGS[i // 2 % 10][number]
        deed, fault = DEEDS[i % 5], FAULTS[i // 2 % 4]
        verb = VERBS[i // 2 % 3]
        (right, *rest), (wrong, *_) = verb[number].split(), verb[1 - number].split()
        state = " ".join([*rest, STATES[i % 7], "."])
        preposition = PREPOSITIONS[i // 2 % 4]
        yield "prepositional", 4, f"{people.format(preposition)} {{}} {state}", right, wrong
        yield "relative", 5, f"{people.format('who ' + deed)} {{}} {state}", right, wrong
        right, wrong = (subject[2], "themselves") if number == 0 else ("themselves", nearer[2])
        yield "reflexive", 5 + len(fault.split()), f"{people.format('who ' + deed)} {fault} {{}} .", right, wrong
        right, wrong = ("this", "these") if number == 0 else ("these", "this")
        grade, size = GRADES[i // 10], SIZES[i // 2 % 2]
        yield "determiner", 4, f"the {nearer[1 - number]} had seen {{}} {grade} {size} {thing} .", right, wrong
        verb, time = VERBS[i // 20], ["then", "now"][i // 20]
        right, wrong = verb[number], verb[1 - number]
        yield "question", 2, f"where {{}} the {thing} of the {nearer[1 - number]} {time} ?", right, wrong


def main():
    for index, (phenomenon, distance, sentence, right, wrong) in enumerate(sorted(pairs(), key=lambda pair: pair[0])):
        answer = index // 2 % 2
        choices = [sentence.format(word) for word in ([wrong, right] if answer else [right, wrong])]
        print(json.dumps({"context": "", "choices": choices, "answer": answer, "phenomenon": phenomenon,
                          "distance": distance}))


main()
