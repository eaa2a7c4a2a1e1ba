"""fetch_data.py against a server of this machine and against folders; no other network."""

import contextlib
import functools
import gzip
import hashlib
import http.server
import io
import lzma
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest
import unittest.mock
import zipfile

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "fetch_data.py"
sys.path.insert(0, str(TOOL.parents[1] / "python"))
from fedhpc.tools import fetch_data, start  # noqa: E402

PLAIN = bytes(range(256)) * 2000
MEMBERS = {"one.bin": b"first" * 100, "two.bin": b"second" * 50}


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def tar_bytes() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, data in MEMBERS.items():
            entry = tarfile.TarInfo("inner/" + name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def bz2_bytes() -> bytes:
    """The members behind something else, with sums that nobody publishes."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:bz2") as tar:
        for name, data in (("readme", b"no"), *reversed(MEMBERS.items())):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def zip_bytes() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name in ("a", "b"):
            file.writestr(f"tree/train/{name}.JPEG", name)
        file.writestr("tree/wnids.txt", "n1\n")
    return stream.getvalue()


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, with ranges unless `ranges` is off; notes what it was asked."""

    ranges = True
    cut = None  # send so many bytes only
    asked = []

    def do_GET(self):
        path = pathlib.Path(self.translate_path(self.path))
        asked = self.headers.get("Range")
        Handler.asked.append((path.name, asked))
        if not path.is_file():
            self.send_error(404, "Not Found")
            return
        data = path.read_bytes()
        start = int(asked[6:-1]) if asked and Handler.ranges else 0
        if start and start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start:][:Handler.cut])

    def log_message(self, *_):
        pass


class FetchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.origin = pathlib.Path(folder.name, "origin")
        self.root = pathlib.Path(folder.name, "data")
        self.origin.mkdir()
        archive, tree = tar_bytes(), zip_bytes()
        for name, data in (("plain.gz", PLAIN), ("set.tar.gz", archive), ("tree.zip", tree)):
            (self.origin / name).write_bytes(data)
        Handler.ranges, Handler.cut, Handler.asked = True, None, []
        server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Handler, directory=str(self.origin)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_address[1]}/"
        source, collection = fetch_data.Source, fetch_data.Collection
        self.collections = {
            "plain": collection("plain", (source(self.url + "plain.gz", md5(PLAIN)),)),
            "sha": collection("sha", (source(self.url + "plain.gz",
                                             hashlib.sha256(PLAIN).hexdigest(), "sha256"),)),
            "packed": collection("packed", (source(
                self.url + "set.tar.gz", md5(archive),
                members=(("one.bin", md5(MEMBERS["one.bin"])), ("two.bin", 300))),)),
            "tree": collection("tree", (source(self.url + "tree.zip", md5(tree),
                                               counts=(("train/*.JPEG", 2),)),)),
            "gone": collection("gone", (source(self.url + "x.gz", None, "sha256"),)),
        }

    def test_members_whose_sums_nobody_publishes(self):
        packed = bz2_bytes()
        (self.origin / "set.tar.bz2").write_bytes(packed)
        digest = hashlib.sha256(packed).hexdigest()
        source = functools.partial(fetch_data.Source, self.url + "set.tar.bz2", digest, "sha256")
        members = tuple((name, None) for name in MEMBERS)
        self.collections["unknown"] = fetch_data.Collection("unknown", (source(members=members),))
        self.assertEqual(self.run_tool("unknown"), (0, ""))
        for name, data in MEMBERS.items():
            self.assertEqual((self.root / "unknown" / name).read_bytes(), data)
        self.assertEqual(self.run_tool("unknown"), (0, ""))
        self.assertEqual(len(Handler.asked), 1)
        self.collections["unknown"] = fetch_data.Collection("other", (source(members=(*members, ("three.bin", None))),))
        self.check_refusal("holds no three.bin", "unknown")

    def test_gits_sums_and_files_without_one(self):
        blob = hashlib.sha1(b"blob %d\0" % len(PLAIN) + PLAIN).hexdigest()
        source = functools.partial(fetch_data.Source, self.url + "plain.gz")
        self.collections["git"] = fetch_data.Collection("git", (source(blob, "git", saved_as="mine.gz"),))
        self.collections["none"] = fetch_data.Collection("none", (source(None, "sha256"),))
        self.assertEqual(self.run_tool("git"), (0, ""))
        self.assertEqual((self.root / "git/mine.gz").read_bytes(), PLAIN)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            self.assertEqual(fetch_data.main(["none", "--to", str(self.root)], self.collections), 0)
        self.assertIn(f"gives no sum; this one has sha256 {hashlib.sha256(PLAIN).hexdigest()}", said.getvalue())
        (self.origin / "plain.gz").write_bytes(b"other")
        (self.root / "git/mine.gz").unlink()
        self.check_refusal(f"expected {blob}; removed", "git")
        self.check_refusal("holds no x.gz with no published sum", "gone", "--from", str(self.origin))

    def run_tool(self, *arguments):
        """Exit code and the lines on standard error."""
        errors = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            code = fetch_data.main([*arguments, "--to", str(self.root)], self.collections)
        return code, errors.getvalue()

    def check_refusal(self, part, *arguments):
        code, errors = self.run_tool(*arguments)
        self.assertEqual(code, 2)
        self.assertIn(part, errors)
        self.assertEqual(errors.count("\n"), 1)

    def test_downloads_checks_and_skips_what_is_right(self):
        self.assertEqual(self.run_tool("plain", "sha", "packed", "tree"), (0, ""))
        self.assertEqual((self.root / "plain/plain.gz").read_bytes(), PLAIN)
        for name, data in MEMBERS.items():
            self.assertEqual((self.root / "packed" / name).read_bytes(), data)
        self.assertTrue((self.root / "tree/train/a.JPEG").is_file())
        self.assertEqual(len(Handler.asked), 4)
        self.assertEqual(list(self.root.rglob("*.part")), [])
        self.assertEqual(self.run_tool("plain", "sha", "packed", "tree"), (0, ""))
        self.assertEqual(len(Handler.asked), 4)
        (self.root / "packed/one.bin").write_bytes(b"damaged")
        self.assertEqual(self.run_tool("packed"), (0, ""))
        self.assertEqual((self.root / "packed/one.bin").read_bytes(), MEMBERS["one.bin"])

    def test_an_interrupted_download_is_taken_up_again(self):
        Handler.cut = 1000
        self.check_refusal("ended after 1000 of 512000 bytes; what came is kept", "plain")
        self.assertEqual((self.root / "plain/plain.gz.part").stat().st_size, 1000)
        Handler.cut = None
        self.assertEqual(self.run_tool("plain"), (0, ""))
        self.assertEqual(Handler.asked[-1], ("plain.gz", "bytes=1000-"))
        self.assertEqual((self.root / "plain/plain.gz").read_bytes(), PLAIN)

    def test_a_wrong_or_complete_beginning_does_no_harm(self):
        for begun in (b"something else", PLAIN, PLAIN[:77]):
            with self.subTest(length=len(begun)):
                part = self.root / "plain/plain.gz.part"
                part.parent.mkdir(parents=True, exist_ok=True)
                part.write_bytes(begun)
                Handler.ranges = len(begun) != 77  # a server without ranges sends all
                self.assertEqual(self.run_tool("plain"), (0, ""))
                target = self.root / "plain/plain.gz"
                self.assertEqual(target.read_bytes(), PLAIN)
                target.unlink()

    def test_another_address_and_a_folder(self):
        moved = self.origin / "mirror"
        moved.mkdir()
        (self.origin / "plain.gz").rename(moved / "plain.gz")
        self.check_refusal("the server answers 404", "plain")
        self.assertEqual(self.run_tool("plain", "--from", self.url + "mirror/"), (0, ""))
        (self.root / "plain/plain.gz").unlink()
        Handler.asked.clear()
        self.assertEqual(self.run_tool("plain", "--from", str(moved)), (0, ""))
        self.assertEqual(self.run_tool("packed", "tree", "--from", str(self.origin)), (0, ""))
        self.assertEqual(Handler.asked, [])
        self.assertTrue((self.root / "tree/wnids.txt").is_file())

    def test_unpacked_members_of_a_folder_are_taken_as_they_are(self):
        laid_out = self.origin / "elsewhere/packed"
        laid_out.mkdir(parents=True)
        (laid_out / "one.bin.xz").write_bytes(lzma.compress(MEMBERS["one.bin"]))
        (laid_out / "two.bin.gz").write_bytes(gzip.compress(MEMBERS["two.bin"]))
        self.assertEqual(self.run_tool("packed", "--from", str(laid_out.parent)), (0, ""))
        self.assertTrue((self.root / "packed/one.bin.xz").is_file())
        (laid_out / "two.bin.gz").write_bytes(b"no gzip")
        (self.root / "packed/two.bin.gz").unlink()
        self.check_refusal("holds no set.tar.gz with md5", "packed", "--from", str(laid_out.parent))

    def test_two_at_once_do_not_disturb_each_other(self):
        calls = [threading.Thread(target=lambda: ended.append(fetch_data.main(["plain", "--to", str(self.root)],
                                                                              self.collections))) for _ in range(4)]
        ended = []
        with contextlib.redirect_stdout(io.StringIO()) as said:
            for one in calls:
                one.start()
            for one in calls:
                one.join()
        self.assertEqual((ended, len(Handler.asked)), ([0] * 4, 1), said.getvalue())

    def test_refusals_are_one_line(self):
        (self.origin / "plain.gz").write_bytes(b"other")
        self.check_refusal(f"md5 {md5(b'other')}, expected {md5(PLAIN)}; removed", "plain")
        self.assertEqual(list(self.root.rglob("*.part")), [])
        self.check_refusal("holds no plain.gz with md5", "plain", "--from", str(self.origin))
        self.check_refusal("no data set 'imagenet'; there are plain, sha", "imagenet")
        self.check_refusal("Connection refused", "plain", "--from", "http://127.0.0.1:9/")

    def test_the_program_itself(self):
        done = subprocess.run([sys.executable, str(TOOL), "imagenet"], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there are mnist, fmnist, cifar10, cifar100, svhn, tinyimagenet, covtype",
                      done.stderr)

    def test_ctrl_c_is_one_line(self):
        said = io.StringIO()
        with (unittest.mock.patch.object(fetch_data, "main", side_effect=KeyboardInterrupt),
              contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended):
            start.start("fetch_data")
        self.assertEqual((ended.exception.code, said.getvalue()), (130, "fetch_data: interrupted\n"))


if __name__ == "__main__":
    unittest.main()
