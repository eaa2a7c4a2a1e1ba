"""Tests of campaign.py's command line; what it does is in tests/app."""

import unittest

import tool_support
from fedhpc.tools import campaign


class CommandLine(unittest.TestCase):
    def test_numbers_that_make_no_campaign(self):
        for option in ("--count", "--workers"):
            with self.subTest(option), self.assertRaises(SystemExit) as ended:
                tool_support.call(campaign, "configs", option, 0)
            self.assertEqual(ended.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
