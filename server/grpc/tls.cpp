#include "server/grpc/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace hardtack::serve::rpc {

namespace {

// gRPC says of a bad file only that there is no server, so OpenSSL is asked first.
Failure bad_file(const std::string& what, const std::string& path) {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  if (::access(path.c_str(), R_OK) != 0) reason = std::strerror(errno);
  return Error{Code::kInvalid,
               what + " " + path + " cannot be used: " + (reason == nullptr ? "unknown reason" : reason)};
}

Failure check_files(const GrpcOptions& options) {
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (context == nullptr) return Error{Code::kInternal, "OpenSSL gives no context for TLS"};
  if (SSL_CTX_use_certificate_chain_file(context.get(), options.tls_certificate.c_str()) != 1) {
    return bad_file("the TLS certificate", options.tls_certificate);
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), options.tls_key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return bad_file("the TLS key", options.tls_key);
  }
  if (!options.tls_client_ca.empty() &&
      SSL_CTX_load_verify_locations(context.get(), options.tls_client_ca.c_str(), nullptr) != 1) {
    return bad_file("the file of client authorities", options.tls_client_ca);
  }
  return std::nullopt;
}

std::string content_of(const std::string& path) {
  std::ostringstream text;
  if (!path.empty()) text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace

Outcome<std::shared_ptr<::grpc::ServerCredentials>> credentials(const GrpcOptions& options) {
  if (options.tls_certificate.empty()) return ::grpc::InsecureServerCredentials();
  if (Failure bad = check_files(options)) return *bad;
  ::grpc::SslServerCredentialsOptions ssl;
  ssl.pem_key_cert_pairs.push_back({content_of(options.tls_key), content_of(options.tls_certificate)});
  ssl.pem_root_certs = content_of(options.tls_client_ca);
  if (!options.tls_client_ca.empty()) {
    ssl.client_certificate_request = GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
  }
  return ::grpc::SslServerCredentials(ssl);
}

}  // namespace hardtack::serve::rpc
