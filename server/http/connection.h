// One connection: reads a request, has it handled, writes the reply, and again.
//
// Only one thing happens at a time, so there is no lock: an io thread reads and hands over; whoever has the reply last (the
// io thread when the reply was there at once, else the thread that brings it) writes it and starts the next read. Beside
// that only the watch for the client's going away is under way, and it touches nothing but a flag.
#ifndef HARDTACK_SERVER_HTTP_CONNECTION_H
#define HARDTACK_SERVER_HTTP_CONNECTION_H

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <memory>

#include "server/http/shared_state.h"

namespace hardtack::serve::http {

/// Serves the socket until it ends; owns itself. `tls` null: plain.
void serve(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* tls, SharedState& shared);

/// Says 503 and closes: there are too many connections.
void turn_away(boost::asio::ip::tcp::socket& socket, std::size_t limit);

}  // namespace hardtack::serve::http

#endif  // HARDTACK_SERVER_HTTP_CONNECTION_H
