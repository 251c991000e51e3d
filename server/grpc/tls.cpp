#include "server/grpc/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace hardtack::serve::rpc {

namespace {

constexpr unsigned kRefreshSeconds = 1;  // how often gRPC looks whether the files changed

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

}  // namespace

Outcome<std::shared_ptr<::grpc::ServerCredentials>> credentials(const GrpcOptions& options) {
  if (options.tls_certificate.empty()) return ::grpc::InsecureServerCredentials();
  if (Failure bad = check_files(options)) return *bad;
  using ::grpc::experimental::FileWatcherCertificateProvider;
  const bool asks = !options.tls_client_ca.empty();
  auto files = asks ? std::make_shared<FileWatcherCertificateProvider>(options.tls_key, options.tls_certificate,
                                                                       options.tls_client_ca, kRefreshSeconds)
                    : std::make_shared<FileWatcherCertificateProvider>(options.tls_key, options.tls_certificate,
                                                                       kRefreshSeconds);
  ::grpc::experimental::TlsServerCredentialsOptions tls(std::move(files));
  tls.watch_identity_key_cert_pairs();
  if (asks) {
    tls.watch_root_certs();
    tls.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return ::grpc::experimental::TlsServerCredentials(tls);
}

}  // namespace hardtack::serve::rpc
