package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
)

// Images returns the images of the runtime.
func (c *Client) Images(ctx context.Context) (list ImageList, err error) {
	return list, c.json(ctx, "/agent/images", &list)
}

// Restart requests that a pod's containers start again in a new sandbox. It does not wait for the
// restart.
func (c *Client) Restart(ctx context.Context, namespace, pod string) (r Restart, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return r, c.post(ctx, path("agent", "restart", namespace, pod), nil, &r)
}

// Pull pulls an image, and returns the image when the pull is complete. The pull is cancelled when
// ctx is done.
func (c *Client) Pull(ctx context.Context, image string) (i Image, err error) {
	return i, c.post(ctx, "/agent/pull", url.Values{"image": {image}}, &i)
}

// post sends a POST request and reads a response that is one JSON value. It waits for the response
// until ctx is done.
func (c *Client) post(ctx context.Context, path string, query url.Values, into any) error {
	req, err := c.request(ctx, http.MethodPost, path, query)
	if err != nil {
		return err
	}
	answer, err := c.send(c.patient, req, http.StatusOK)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(answer.Body, c.maxAnswer))
	if err != nil {
		return &UnreachableError{c.server.String(), err}
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s%s: unexpected response, is this the URL of an agent? %w", c.server, path, err)
	}
	return nil
}

// Upgrade sends a request that switches the connection to another protocol, and returns the
// connection. The protocol is the value of the header Upgrade. If the agent does not switch
// protocols, the error is a [*StatusError]. After the switch, ctx has no effect. The caller must
// close the connection. Package stream uses Upgrade.
func (c *Client) Upgrade(ctx context.Context, path string, query url.Values, header http.Header) (io.ReadWriteCloser, http.Header, error) {
	req, err := c.request(ctx, http.MethodPost, path, query)
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Connection", "Upgrade")
	answer, err := c.send(c.http, req, http.StatusSwitchingProtocols)
	if err != nil {
		return nil, nil, err
	}
	conn, ok := answer.Body.(io.ReadWriteCloser)
	if !ok {
		_ = answer.Body.Close()
		return nil, nil, fmt.Errorf("%s%s: the connection can't be used after the switch of protocols", c.server, path)
	}
	return conn, answer.Header, nil
}
