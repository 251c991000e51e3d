// hardtack-rt: looks at, checks and runs bundles from the command line, with libhardtack alone.
#include <hardtack/hardtack.h>

#include <cstdio>
#include <cstring>

#include "commands.h"
#include "text.h"

namespace hardtack::tools {
namespace {

struct Command {
  const char* name;
  const char* usage;
  const char* summary;
  const char* details;
  std::vector<Option> options;
  int (*main)(const Args&);
};

const std::vector<Command>& commands() {
  static const Option kJson = {"--json", "", "print JSON instead of text"};
  static const Option kHelp = {"--help", "", "show this help", "-h"};
  static const Option kTarget = {"--target", "NAME", "use this target of the bundle, not the best"};
  static const Option kDevice = {"--device", "DEVICE", "cpu, cuda or cuda:N (default: cpu)"};
  static const Option kEntry = {"--entry", "NAME", "the entry point; needed when the bundle has several"};
  static const Option kThreads = {"--threads", "N", "worker threads, the calling one included (default: all CPUs)"};
  static const Option kWeights = {"--weights", "FILE", "the bundle's weights, when they are outside and not beside it"};
  static const Option kSeed = {"--seed", "N", "the seed of random numbers, of a model that draws some (default: 0)"};
  static const Option kInput = {"--input", "NAME=FILE.npy", "the data of an input; once for each input", "-i"};
  static const std::vector<Command> list = {
      {"inspect",
       "inspect FILE.pkg",
       "what a bundle holds: entries, inputs, targets, constants, members",
       "Reads and verifies the manifest and the plans. Runs nothing, so it works on any machine.\n",
       {{"--members", "", "list the members of the archive, too"},
        {"--constants", "", "list the constants, too"},
        kTarget,
        kJson,
        kHelp},
       inspect},
      {"verify",
       "verify FILE.pkg",
       "check everything in a bundle without running it",
       "Checks the container, every checksum and hash, the plans of all targets and the form of all libraries.\n"
       "With --key or --trusted-keys, also that the bundle is signed by one of the keys.\n",
       {{"--key", "HEX", "an ed25519 public key to trust, 64 hexadecimal digits; repeat for more"},
        {"--trusted-keys", "FILE", "keys to trust, one a line, and models with the lowest version that is trusted"},
        {"--signed-model", "NAME", "the model that the signature must name"},
        kWeights,
        kJson,
        kHelp},
       verify},
      {"run",
       "run FILE.pkg -i x=x.npy -o OUT",
       "run once on .npy files",
       "Inputs are .npy files in C order; outputs are written to OUT/<name>.npy.\n"
       "bfloat16 and float8, which .npy cannot name, are read and written as uint16 and uint8.\n",
       {kInput,
        {"--output", "DIR", "folder for the outputs, made if needed; without it only a summary is printed", "-o"},
        kEntry,
        kThreads,
        kSeed,
        kDevice,
        kTarget,
        kWeights,
        kJson,
        kHelp},
       run},
      {"bench",
       "bench FILE.pkg",
       "time loading and running",
       "Inputs that are not given are filled with zeros, at the smallest declared size unless --size says otherwise.\n"
       "Reports the median and the 10th and 90th percentile of the runs after a warm-up.\n",
       {kInput,
        {"--size", "SYM=N", "the value of a size symbol for inputs that are not given; repeat for each"},
        {"--seconds", "N", "measure for about this long (default 2)"},
        {"--steps", "", "also time each kernel, summed over its launches"},
        kEntry,
        kThreads,
        kSeed,
        kDevice,
        kTarget,
        kWeights,
        kJson,
        kHelp},
       bench},
  };
  return list;
}

int help() {
  std::string out = "hardtack-rt " + std::string(ht_version()) + ": look at, check and run Hardtack bundles\n\n" +
                    bold("Usage") + "\n  hardtack-rt COMMAND FILE.pkg [options]\n\n" + bold("Commands") + "\n";
  std::vector<std::vector<std::string>> rows;
  for (const Command& c : commands()) rows.push_back({c.name, c.summary});
  out += table(rows);
  out += "\n" + bold("Examples") +
         "\n  hardtack-rt inspect model.pkg\n  hardtack-rt run model.pkg -i x=x.npy -o out\n"
         "  hardtack-rt bench model.pkg --size batch=8 --threads 2\n\n"
         "hardtack-rt COMMAND --help explains one. Exit status: 0 good, 1 bad bundle or result, 2 wrong use.\n";
  std::fputs(out.c_str(), stdout);
  return kGood;
}

int help(const Command& command) {
  const std::string out = std::string(command.summary) + "\n\n" + bold("Usage") + "\n  hardtack-rt " + command.usage +
                          " [options]\n\n" + command.details + "\n" + bold("Options") + "\n" +
                          option_table(command.options);
  std::fputs(out.c_str(), stdout);
  return kGood;
}

int dispatch(int argc, char** argv) {
  if (argc < 2) return help(), kWrongUse;
  const std::string word = argv[1];
  if (word == "--help" || word == "-h" || word == "help") return help();
  if (word == "--version") {
    std::printf("hardtack-rt %s\n", ht_version());
    return kGood;
  }
  for (const Command& command : commands()) {
    if (word != command.name) continue;
    Args args;
    std::string problem;
    if (!parse_args(argc, argv, command.options, &args, &problem)) return wrong_use(word + ": " + problem);
    if (args.has("--help")) return help(command);
    if (args.operands.size() != 1) return wrong_use(word + ": expected one bundle: hardtack-rt " + command.usage);
    return command.main(args);
  }
  return wrong_use("unknown command \"" + word + "\"");
}

}  // namespace

int bad(const std::string& message) {
  std::fprintf(stderr, "%s %s\n", red("error:").c_str(), message.c_str());
  return kBad;
}

int wrong_use(const std::string& message) {
  std::fprintf(stderr, "%s %s\nhardtack-rt --help shows how to use it\n", red("error:").c_str(), message.c_str());
  return kWrongUse;
}

}  // namespace hardtack::tools

int main(int argc, char** argv) { return hardtack::tools::dispatch(argc, argv); }
