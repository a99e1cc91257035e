package wirelist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// requests are the same request for the two forms of a list.
type requests interface {
	single() proto.Message
	stream() proto.Message
}

// call is one of the two lists, in its two forms.
type call[M item] struct {
	cfg     Config
	options []grpc.CallOption
	memory  *memory[M]
	// single and stream are the methods: all in one message, or in several.
	single, stream string
	// tooLarge is the size in bytes of the list that first was too large for one
	// message; 0 while lists are not.
	tooLarge atomic.Int64
}

func newCall[M item](cfg Config, of layout[M], single, stream string) *call[M] {
	return &call[M]{
		cfg: cfg, memory: newMemory(of), single: single, stream: stream,
		options: []grpc.CallOption{
			grpc.ForceCodecV2(codec{encoding.GetCodecV2(grpcproto.Name)}),
			grpc.MaxCallRecvMsgSize(cfg.MaxMessageBytes),
		},
	}
}

// list asks for one message as long as that can be, and then for a stream. It is
// back to one message when the list is half as large as when that failed.
func (c *call[M]) list(ctx context.Context, by requests) ([]M, error) {
	if _, ok := ctx.Deadline(); !ok {
		limited, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
		defer cancel()
		ctx = limited
	}
	if tooLarge := c.tooLarge.Load(); tooLarge > 0 {
		return c.listStream(ctx, by, tooLarge)
	}
	a := c.memory.begin()
	err := c.cfg.Conn.Invoke(ctx, c.single, by.single(), a, c.options...)
	if err == nil {
		return a.end(), nil
	}
	// The code for a message too large, be it that the runtime will not send it or
	// that we will not read it.
	if grpcstatus.Code(err) != codes.ResourceExhausted {
		return nil, err
	}
	items, streamErr := c.listStream(ctx, by, 0)
	if grpcstatus.Code(streamErr) == codes.Unimplemented {
		return nil, fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	return items, streamErr
}

// listStream asks for a stream, and notes whether to do so again, given the size
// of the list that was too large for one message, 0 if that is this one.
func (c *call[M]) listStream(ctx context.Context, by requests, tooLarge int64) ([]M, error) {
	a := c.memory.begin()
	switch err := c.readStream(ctx, by.stream(), a); {
	case grpcstatus.Code(err) == codes.Unimplemented:
		c.tooLarge.Store(0)
		return nil, err
	case err != nil:
		return nil, err
	case tooLarge == 0:
		c.tooLarge.Store(a.size)
	case a.size <= tooLarge/2:
		c.tooLarge.Store(0)
	}
	return a.end(), nil
}

// readStream has a receive a whole stream.
func (c *call[M]) readStream(ctx context.Context, request proto.Message, a *answer[M]) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // frees a stream that was not read to its end
	s, err := c.cfg.Conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, c.stream, c.options...)
	if err != nil {
		return err
	}
	// Where sending fails with EOF, receiving tells why.
	if err := s.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	for {
		if err := s.RecvMsg(a); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// receiver takes a message as it came, in buffers that are not its to keep.
type receiver interface {
	receive(message mem.BufferSlice) error
}

// codec encodes requests as gRPC does, and hands answers to their receivers.
type codec struct{ encoding.CodecV2 }

// Name implements encoding.CodecV2. It is empty because gRPC appends the name to the
// content type of the call, and CRI-O closes a connection whose first call has another
// content type than application/grpc, which is that of ordinary calls.
func (codec) Name() string { return "" }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(receiver); ok {
		return r.receive(data)
	}
	return c.CodecV2.Unmarshal(data, v)
}
