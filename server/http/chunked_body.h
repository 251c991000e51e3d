// The body of a chunked request as Beast's parser wants it: into memory that is counted.
#ifndef HARDTACK_SERVER_HTTP_CHUNKED_BODY_H
#define HARDTACK_SERVER_HTTP_CHUNKED_BODY_H

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/message.hpp>
#include <memory>

#include "server/http/body.h"

namespace hardtack::serve::http {

/// `not_enough_memory` where a chunk does not fit.
struct CountedBody {
  using Error = boost::beast::error_code;
  using value_type = std::shared_ptr<Body>;
  class reader {
   public:
    template <bool kRequest, typename Fields>
    reader(boost::beast::http::header<kRequest, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>&, Error& error) { error = {}; }
    template <typename Buffers>
    std::size_t put(const Buffers& buffers, Error& error) {
      std::size_t taken = 0;
      for (auto it = boost::asio::buffer_sequence_begin(buffers); it != boost::asio::buffer_sequence_end(buffers);
           ++it) {
        const boost::asio::const_buffer part = *it;
        if (!body_->append(part.data(), part.size())) {
          error = make_error_code(boost::system::errc::not_enough_memory);
          return taken;
        }
        taken += part.size();
      }
      error = {};
      return taken;
    }
    void finish(Error& error) { error = {}; }

   private:
    value_type& body_;
  };
};
}  // namespace hardtack::serve::http

#endif  // HARDTACK_SERVER_HTTP_CHUNKED_BODY_H
