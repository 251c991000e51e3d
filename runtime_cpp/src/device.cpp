#include "device.h"

namespace hardtack::rt {

Status parse_device(const char* text, DeviceName* name) {
  const std::string_view given = text == nullptr ? "cpu" : text;
  const std::string_view kind = given.substr(0, given.find(':'));
  const bool numbered = kind.size() < given.size();
  const std::string_view number = numbered ? given.substr(kind.size() + 1) : "0";
  if (kind == "hip") {
    return error(HT_NO_TARGET,
                 "device \"%s\": this Hardtack runs cpu and cuda; it can check targets for AMD GPUs, but not "
                 "run them",
                 std::string(given.substr(0, 100)).c_str());
  }
  const bool good =
      number.size() >= 1 && number.size() <= 3 && number.find_first_not_of("0123456789") == std::string_view::npos;
  if (!good || !(kind == "cuda" || (kind == "cpu" && !numbered))) {
    return error(HT_NO_TARGET, "device \"%s\": expected \"cpu\", \"cuda\" or \"cuda:<number>\"",
                 std::string(given.substr(0, 100)).c_str());
  }
  name->kind = std::string(kind);
  name->ordinal = std::stoi(std::string(number));
  return Status();
}

Status Queue::end_recording(bool, std::unique_ptr<Recording>*) {
  return error(HT_INTERNAL, "this device cannot record a run");
}

}  // namespace hardtack::rt
