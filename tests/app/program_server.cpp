// Starts of the program without loading it: a process that has loaded it forks for each command.
// The program's own main runs in the child, with the folder, environment and files of the request.
//
//   program_server FD    FD: a socket of the kind SOCK_SEQPACKET
//
// A request is one message: words, each ended by a zero byte (the folder, the number of arguments,
// the arguments from the program's name on, the environment as NAME=VALUE), and three open files
// for 0, 1 and 2. The answers are the child's process id and, once it has ended, its status as
// waitpid() gives it.

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

int program_main(int argc, char** argv);  // src/app/main.cpp

namespace {

constexpr std::size_t kLongestRequest = 1 << 20;
constexpr int kFiles = 3;

struct Request {
  std::vector<std::string> words;
  std::array<int, kFiles> files{};
};

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

/// False where the other end is closed.
bool receive(int from, Request& request) {
  static std::array<char, kLongestRequest> text;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kFiles * sizeof(int))> control{};
  iovec part{.iov_base = text.data(), .iov_len = text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t length = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
  if (length < 0) fail("recvmsg");
  if (length == 0) return false;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_len != CMSG_LEN(kFiles * sizeof(int))) fail("three files");
  std::memcpy(request.files.data(), CMSG_DATA(header), kFiles * sizeof(int));
  for (const char* word = text.data(); word < text.data() + length; word += std::strlen(word) + 1) {
    request.words.emplace_back(word);
  }
  return true;
}

[[noreturn]] void be_the_program(Request& request) {
  setsid();
  for (int file = 0; file < kFiles; ++file) {
    if (dup2(request.files[static_cast<std::size_t>(file)], file) < 0) fail("dup2");
  }
  std::vector<std::string>& words = request.words;
  if (chdir(words.at(0).c_str()) != 0) fail("chdir");
  const std::size_t count = std::stoul(words.at(1));
  clearenv();
  for (std::size_t w = 2 + count; w < words.size(); ++w) putenv(words[w].data());
  std::vector<char*> arguments;
  for (std::size_t a = 0; a < count; ++a) arguments.push_back(words.at(2 + a).data());
  arguments.push_back(nullptr);
  program_main(static_cast<int>(count), arguments.data());
  std::abort();  // it ends the process itself
}

void answer(int to, int number) {
  if (send(to, &number, sizeof number, MSG_NOSIGNAL) != sizeof number) fail("send");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const int socket = std::atoi(argv[1]);
  for (Request request; receive(socket, request); request = {}) {
    const pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
      close(socket);
      be_the_program(request);
    }
    for (const int file : request.files) close(file);
    answer(socket, child);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    answer(socket, status);
  }
}
