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

// requests creates the request for a list in one message and the equivalent request for a
// stream.
type requests interface {
	single() proto.Message
	stream() proto.Message
}

// call requests one of the two kinds of lists, in one message or as a stream.
type call[M item] struct {
	cfg     Config
	options []grpc.CallOption
	memory  *memory[M]
	// single and stream are the gRPC methods: all items in one message, or in several.
	single, stream string
	// tooLarge is the size in bytes of the first list that was too large for one
	// message; 0 while lists are requested in one message.
	tooLarge atomic.Int64
}

func newCall[M item](cfg Config, l layout[M], single, stream string) *call[M] {
	return &call[M]{
		cfg: cfg, memory: newMemory(l), single: single, stream: stream,
		options: []grpc.CallOption{
			grpc.ForceCodecV2(codec{encoding.GetCodecV2(grpcproto.Name)}),
			grpc.MaxCallRecvMsgSize(cfg.MaxMessageBytes),
		},
	}
}

// The method list requests a list in one message. If the list is too large for one message, the
// method requests it as a stream, and the following lists too. After a list that is at most half
// as large as the list that was too large, it requests the next list in one message again. If the
// runtime no longer supports streams, the method requests the same list again in one message.
func (c *call[M]) list(ctx context.Context, by requests) ([]M, error) {
	if _, ok := ctx.Deadline(); !ok {
		limited, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
		defer cancel()
		ctx = limited
	}
	if tooLarge := c.tooLarge.Load(); tooLarge > 0 {
		items, err := c.listStream(ctx, by, tooLarge)
		if grpcstatus.Code(err) != codes.Unimplemented {
			return items, err
		}
	}
	a := c.memory.begin()
	err := c.cfg.Conn.Invoke(ctx, c.single, by.single(), a, c.options...)
	if err == nil {
		return a.finish(), nil
	}
	// ResourceExhausted means that the message is too large for the runtime to send or
	// for this client to receive.
	if grpcstatus.Code(err) != codes.ResourceExhausted {
		return nil, err
	}
	items, streamErr := c.listStream(ctx, by, 0)
	if grpcstatus.Code(streamErr) == codes.Unimplemented {
		return nil, fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	return items, streamErr
}

// listStream requests a list as a stream, and records whether to request the next list as a
// stream. tooLarge is the size of the earlier list that was too large for one message, or 0
// if this list is the first that was too large.
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
	return a.finish(), nil
}

// readStream passes all messages of a stream to a.
func (c *call[M]) readStream(ctx context.Context, request proto.Message, a *answer[M]) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // releases a stream that was not read to its end
	s, err := c.cfg.Conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, c.stream, c.options...)
	if err != nil {
		return err
	}
	// If sending fails with EOF, receiving returns the cause.
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

// receiver reads an encoded message from buffers that it must not retain.
type receiver interface {
	receive(message mem.BufferSlice) error
}

// codec encodes requests like gRPC's codec and passes encoded responses to their receivers.
type codec struct{ encoding.CodecV2 }

// Name implements encoding.CodecV2. It is empty because gRPC appends the name to the
// content type of the call. CRI-O closes a connection if the content type of the first call
// is not application/grpc, the content type of ordinary calls.
func (codec) Name() string { return "" }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(receiver); ok {
		return r.receive(data)
	}
	return c.CodecV2.Unmarshal(data, v)
}
