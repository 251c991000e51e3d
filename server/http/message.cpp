#include "server/http/message.h"

#include <nlohmann/json.hpp>

namespace hardtack::serve::http {

int status_of(Code code) {
  switch (code) {
    case Code::kInvalid:
    case Code::kNotReady:
    case Code::kUnsupported:
    case Code::kModel: return 400;
    case Code::kUnauthenticated: return 401;
    case Code::kForbidden: return 403;
    case Code::kTooMany: return 429;
    case Code::kNotFound: return 404;
    case Code::kTooLarge: return 413;
    case Code::kQueueFull:
    case Code::kStopping:
    case Code::kNoMemory: return 503;
    case Code::kDeadline:
    case Code::kRunLimit: return 504;
    case Code::kCancelled: return 499;
    case Code::kDevice:
    case Code::kInternal: return 500;
  }
  return 500;
}

const char* reason_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 499: return "Client Closed Request";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "Internal Server Error";
  }
}

void append_json_string(std::string& out, std::string_view text) {
  bool plain = true;
  for (const char c : text) plain = plain && c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  if (plain) {
    ((out += '"') += text) += '"';
    return;
  }
  out += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

HttpReply error_reply(int status, std::string_view sentence) noexcept try {
  HttpReply reply;
  reply.status = status;
  reply.text = "{\"error\":";
  append_json_string(reply.text, sentence);
  reply.text += '}';
  return reply;
} catch (...) {
  HttpReply reply;
  reply.status = 503;
  reply.drop = true;
  return reply;
}

HttpReply error_reply(const Error& error) noexcept {
  HttpReply reply = error_reply(status_of(error.code), error.sentence);
  reply.drop = reply.drop || error.code == Code::kCancelled;
  return reply;
}

}  // namespace hardtack::serve::http
