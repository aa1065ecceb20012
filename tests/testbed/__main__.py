"""Hosts to try the roll-out on: python -m tests.testbed up [COUNT] | down."""

import sys

from tests.testbed.hosts import Testbed

USAGE = "usage: python -m tests.testbed up [COUNT] | down"


def main(arguments: list[str]) -> int:
    match arguments:
        case ["up", *count] if len(count) <= 1 and all(text.isdigit() for text in count):
            testbed = Testbed("ddfleet")
            testbed.up(int(count[0]) if count else 3)
            print(f"{len(testbed.names)} hosts; deploy to them with: ansible-playbook -i {testbed.inventory} site.yml")
        case ["down"]:
            Testbed("ddfleet").down()
        case _:
            print(USAGE, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
