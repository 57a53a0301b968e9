"""Hit ratios of Mooncake's traces in tokens: as their blocks say, and with the tokens that blocks cannot show.

    python3 lab/truth/mooncake.py conversation_trace.jsonl synthetic_trace.jsonl

The traces have blocks of 512 tokens. A prefix that two requests share ends somewhere within a block, and the traces show it up to the block before. So the second
figure adds half of the next block for each request that shares a prefix. Caches are LRU, of 3 million tokens and without a bound.
"""

import json
import sys
from collections import OrderedDict

BLOCK = 512


def hit_ratios(path, slots):
    cache = OrderedDict()
    asked = found = hidden = 0
    with open(path) as lines:
        for line in lines:
            request = json.loads(line)
            blocks, length = request["hash_ids"], request["input_length"]
            shared = 0
            while shared < len(blocks) and blocks[shared] in cache:
                shared += 1
            tokens = min(length, shared * BLOCK)
            asked += length
            found += tokens
            if shared > 0:
                hidden += min(BLOCK, length - tokens) / 2
            for block in blocks:
                cache[block] = None
                cache.move_to_end(block)
            while len(cache) > slots:
                cache.popitem(last=False)
    return found / asked, (found + hidden) / asked


def main():
    print("| trace | tokens in the cache | hits | with half a block for each shared prefix |")
    print("| --- | --- | --- | --- |")
    for path in sys.argv[1:]:
        for tokens, slots in [("3,000,000", 3_000_000 // BLOCK), ("all", sys.maxsize)]:
            hits, more = hit_ratios(path, slots)
            print(f"| {path} | {tokens} | {hits:.2%} | {more:.2%} |")


if __name__ == "__main__":
    main()
