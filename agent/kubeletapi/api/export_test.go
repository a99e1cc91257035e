package api

import (
	"context"
	"net"
	"net/http"
)

// Dial replaces the dial function of a client.
func (c *Client) Dial(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	c.http.Transport.(*http.Transport).DialContext = dial
}

// LimitAnswers sets the maximum size of a response.
func (c *Client) LimitAnswers(bytes int64) { c.maxAnswer = bytes }
