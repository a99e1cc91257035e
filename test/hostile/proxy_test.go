//go:build linux && hostile

package hostile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// maxLate is the longest delay of a response.
	maxLate = 1500 * time.Millisecond
	// keptEvents is the number of events that are kept to be sent again.
	keptEvents = 64
	// maxMessageBytes is the largest message that the proxy accepts from both sides.
	maxMessageBytes = 64 << 20
)

// attack defines how the proxy disturbs the calls of a phase. Each share is the probability
// of the fault for a call; a call gets at most one of these faults.
type attack struct {
	fail    float64 // the call fails, before or after the runtime has executed it
	hang    float64 // the call blocks until the caller gives up or the attack is over
	late    float64 // the runtime executes the call at once, but the response is delayed by up to maxLate
	lie     float64 // fields of the response are changed
	garbage float64 // bytes of the response are changed
	flood   int     // number of false events that are sent in addition
	foreign bool    // lists ignore the filter, and contain pods of other clients that do not exist

	over chan struct{}
}

// honest reports whether the responses show all existing objects correctly.
func (a attack) honest() bool { return a.lie == 0 && a.garbage == 0 }

// tried has the statistics of the attacks of a run.
type tried struct {
	calls, failed, hung, late, lies, garbage, cut, floods, foreign int
	cases                                                          map[string]bool // method, code, before or after
}

// proxy is a CRI server between the agent and the node. It forwards every method of every
// service, and handles only lists and streams specially, by their names.
type proxy struct {
	conn *grpc.ClientConn

	mu       sync.Mutex
	rng      *rand.Rand
	attack   attack
	wake     chan struct{} // closed when attack changes
	floods   int           // false events that are still to be sent
	next     map[string]int
	tried    tried
	events   []proto.Message
	others   map[string]bool // ids of the foreign pods and containers
	trespass []string        // calls that would have changed one of these
}

// newProxy returns a proxy for the node behind socket.
func newProxy(socket string, seed uint64, others map[string]bool) (*proxy, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes)))
	if err != nil {
		return nil, err
	}
	p := &proxy{
		conn: conn, rng: rand.New(rand.NewPCG(seed, 1)), wake: make(chan struct{}), next: map[string]int{}, others: others,
		tried: tried{cases: map[string]bool{}},
	}
	p.attack.over = make(chan struct{})
	return p, nil
}

// run serves until ctx is done.
func (p *proxy) run(ctx context.Context, l net.Listener) error {
	srv := grpc.NewServer(grpc.UnknownServiceHandler(p.serve), grpc.ForceServerCodec(codec{}),
		grpc.MaxRecvMsgSize(maxMessageBytes), grpc.WaitForHandlers(true))
	stop := context.AfterFunc(ctx, srv.Stop)
	defer stop()
	err := srv.Serve(l)
	srv.Stop() // returns when the handlers have
	return errors.Join(err, p.conn.Close())
}

// begin ends the current attack and begins another.
func (p *proxy) begin(a attack) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.attack.over)
	close(p.wake)
	a.over = make(chan struct{})
	p.attack, p.floods, p.wake = a, a.flood, make(chan struct{})
}

// callFault is the fault of one call. The zero value is no fault.
type callFault struct {
	before, after error
	hang          bool
	late          time.Duration
	lie, garbage  bool
	foreign       bool
	over          chan struct{}
}

// decide chooses the fault of a call at random, and counts it.
func (p *proxy) decide(method string) (s callFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, t := p.attack, &p.tried
	t.calls++
	s.over, s.foreign = a.over, a.foreign && strings.HasPrefix(method, "List")
	if s.foreign {
		t.foreign++
	}
	draw := p.rng.Float64()
	hit := func(share float64) bool {
		draw -= share
		return draw < 0
	}
	switch {
	case hit(a.fail):
		s.before, s.after = p.nextFailure(method)
		t.failed++
	case hit(a.hang):
		s.hang = true
		t.hung++
		t.cases[method+" hangs"] = true
	case hit(a.late):
		s.late = time.Duration(p.rng.Int64N(int64(maxLate)))
		t.late++
	case hit(a.lie):
		s.lie = true
		t.lies++
	case hit(a.garbage):
		s.garbage = true
		t.garbage++
	}
	return s
}

// nextFailure returns the next error code of a method. Each code is used in turn, once
// after and once before the runtime executes the call.
func (p *proxy) nextFailure(method string) (before, after error) {
	n := p.next[method]
	p.next[method]++
	code := codes.Code(1 + n/2%16)
	err := grpcstatus.Error(code, text(p.rng))
	p.tried.cases[fmt.Sprintf("%s %v %d", method, code, n%2)] = true
	if n%2 == 0 {
		return nil, err
	}
	return err, nil
}

// serve handles a call of any method of the CRI.
func (p *proxy) serve(_ any, stream grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(stream)
	method, in, out, err := messages(full)
	if err != nil {
		return err
	}
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	p.watch(string(method.Name()), in)
	if method.IsStreamingServer() {
		return p.forwardStream(stream, full, in, out)
	}
	s := p.decide(string(method.Name()))
	if s.foreign {
		clearFilter(in)
	}
	if s.before != nil {
		return s.before
	}
	ctx := stream.Context()
	if s.hang {
		if err := pause(ctx, nil, s.over); err != nil {
			return err
		}
	}
	if err := p.conn.Invoke(ctx, full, in, out); err != nil {
		return err
	}
	if s.late != 0 {
		timer := time.NewTimer(s.late)
		defer timer.Stop()
		if err := pause(ctx, timer.C, s.over); err != nil {
			return err
		}
	}
	if s.after != nil {
		return s.after
	}
	if s.foreign {
		addForeign(out)
	}
	return p.send(stream, out, s)
}

// send sends a response after applying the fault of the call.
func (p *proxy) send(stream grpc.ServerStream, m proto.Message, s callFault) error {
	if !s.lie && !s.garbage {
		return stream.SendMsg(m)
	}
	p.mu.Lock()
	rng := rand.New(rand.NewPCG(p.rng.Uint64(), 2))
	p.mu.Unlock()
	if s.lie {
		lie(rng, m.ProtoReflect())
		return stream.SendMsg(m)
	}
	data, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return stream.SendMsg(frame(spoil(rng, data)))
}

// pause returns when a timer fires or the attack is over. It returns an error if the caller
// has cancelled the call.
func pause(ctx context.Context, timer <-chan time.Time, over <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return grpcstatus.FromContextError(ctx.Err()).Err()
	case <-timer:
	case <-over:
	}
	return nil
}

// forwardStream forwards a stream of events, with the false events of a flood in between.
func (p *proxy) forwardStream(stream grpc.ServerStream, full string, in, out proto.Message) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	below, err := p.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, full)
	if err != nil {
		return err
	}
	if err := errors.Join(below.SendMsg(in), below.CloseSend()); err != nil {
		return err
	}
	events, ended := make(chan proto.Message), make(chan error, 1)
	go func() {
		for {
			e := proto.Clone(out)
			if err := below.RecvMsg(e); err != nil {
				ended <- err
				return
			}
			select {
			case events <- e:
			case <-ctx.Done():
				ended <- ctx.Err()
				return
			}
		}
	}()
	for {
		lie, wake := p.falseEvent()
		if lie != nil {
			if err := stream.SendMsg(lie); err != nil {
				return err
			}
			continue
		}
		select {
		case err := <-ended:
			return err
		case e := <-events:
			if err := p.forwardEvent(stream, e); err != nil {
				return err
			}
		case <-wake:
		}
	}
}

// forwardEvent forwards one true event, or applies the fault of the attack.
func (p *proxy) forwardEvent(stream grpc.ServerStream, e proto.Message) error {
	p.mu.Lock()
	p.events = append(p.events[max(0, len(p.events)-keptEvents+1):], proto.Clone(e))
	p.mu.Unlock()
	s := p.decide("GetContainerEvents")
	if err := errors.Join(s.before, s.after); err != nil {
		p.mu.Lock()
		p.tried.cut++
		p.mu.Unlock()
		return errors.Join(s.before, s.after)
	}
	if s.hang {
		if err := pause(stream.Context(), nil, s.over); err != nil {
			return err
		}
	}
	return p.send(stream, e, s)
}

// falseEvent returns the next event of a flood: an old event, an event with changed fields,
// or an event of a pod that does not exist. Without a flood, it returns nil and a channel
// that is closed when the attack changes.
func (p *proxy) falseEvent() (_ proto.Message, wake chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.floods == 0 {
		return nil, p.wake
	}
	p.floods--
	p.tried.floods++
	if len(p.events) == 0 || p.rng.IntN(8) == 0 {
		id := fmt.Sprintf("%s%d", madeUp, p.rng.IntN(1000))
		return &runtimeapi.ContainerEventResponse{
			ContainerId: id, ContainerEventType: runtimeapi.ContainerEventType(p.rng.IntN(6)),
			PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Uid: id}},
		}, nil
	}
	e := proto.Clone(p.events[p.rng.IntN(len(p.events))])
	if p.rng.IntN(3) == 0 {
		lie(p.rng, e.ProtoReflect())
	}
	return e, nil
}

// watch records calls that would change objects of other clients.
func (p *proxy) watch(method string, in proto.Message) {
	if strings.HasPrefix(method, "List") || strings.HasSuffix(method, "Status") || strings.HasSuffix(method, "Stats") {
		return
	}
	m := in.ProtoReflect()
	for _, name := range []protoreflect.Name{"pod_sandbox_id", "container_id"} {
		field := m.Descriptor().Fields().ByName(name)
		if field == nil {
			continue
		}
		id := m.Get(field).String()
		p.mu.Lock()
		if p.others[id] || strings.HasPrefix(id, madeUp) {
			p.trespass = append(p.trespass, method+" "+id)
		}
		p.mu.Unlock()
	}
}

// trespasses returns the calls that would have changed objects of other clients.
func (p *proxy) trespasses() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trespass
}

// messages returns a method and its empty messages.
func messages(full string) (method protoreflect.MethodDescriptor, in, out proto.Message, err error) {
	name := strings.ReplaceAll(strings.TrimPrefix(full, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	method, ok := d.(protoreflect.MethodDescriptor)
	if err != nil || !ok {
		return nil, nil, nil, grpcstatus.Errorf(codes.Unimplemented, "unknown method %s", full)
	}
	types := [2]proto.Message{}
	for i, d := range []protoreflect.MessageDescriptor{method.Input(), method.Output()} {
		t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
		if err != nil {
			return nil, nil, nil, err
		}
		types[i] = t.New().Interface()
	}
	return method, types[0], types[1], nil
}

// frame is the bytes of a message.
type frame []byte

// codec sends messages, and frames as they are.
type codec struct{}

// Name returns the name of the codec that clients use.
func (codec) Name() string { return "proto" }

// Marshal returns the bytes of a message or frame.
func (codec) Marshal(v any) ([]byte, error) {
	if f, ok := v.(frame); ok {
		return f, nil
	}
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return proto.Marshal(m)
}

// Unmarshal reads a message.
func (codec) Unmarshal(data []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message", v)
	}
	return proto.Unmarshal(data, m)
}
