package fakecri

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Answer defines how the node changes a response. An Answer is possible for lists of
// containers, sandboxes and images, streamed or not. For the status of a container,
// sandbox or image, only Bare and Nil are possible. The zero Answer changes nothing.
type Answer struct {
	// Stale makes a list return the state at the time of the call of [Node.Fail].
	Stale bool
	// Keep, if not nil, is the number of entries after which a list is cut.
	Keep *int
	// Missing are the objects that are removed from a list, identified by id or as in
	// Call.Object.
	Missing []string
	// Duplicates are the objects that are added to a list a second time, at its end. They
	// are identified as in Missing.
	Duplicates []string
	// PadBytes is the size of an annotation that is added to the first entry of a list of
	// containers or sandboxes. A list of more than 16 MiB fails over gRPC.
	PadBytes int
	// Bare sets all messages, lists and maps in each object to nil, so that the object
	// has only numbers and strings.
	Bare bool
	// Nil makes a status, and each entry of a list, nil. Over gRPC an entry cannot be
	// nil, so the client receives an empty entry.
	Nil bool
}

// padding is the annotation that Answer.PadBytes adds.
const padding = "fakecri/padding"

func (a Answer) isZero() bool { return reflect.ValueOf(a).IsZero() }

func (a Answer) clone() Answer {
	if a.Keep != nil {
		a.Keep = new(*a.Keep)
	}
	a.Missing, a.Duplicates = slices.Clone(a.Missing), slices.Clone(a.Duplicates)
	return a
}

// validate returns all problems of this Answer for a response of the method, which must
// exist.
func (a Answer) validate(method string) error {
	var errs []error
	switch method {
	case "ListContainers", "ListPodSandbox", "ListImages", "StreamContainers", "StreamPodSandboxes", "StreamImages":
	case "ContainerStatus", "PodSandboxStatus", "ImageStatus":
		if a.Stale || a.Keep != nil || a.Missing != nil || a.Duplicates != nil || a.PadBytes != 0 {
			errs = append(errs, fmt.Errorf("field Answer: for %s only Bare and Nil are possible", method))
		}
	default:
		errs = append(errs, fmt.Errorf("field Answer: not possible for method %q", method))
	}
	if a.Keep != nil && *a.Keep < 0 || a.PadBytes < 0 {
		errs = append(errs, errors.New("fields Answer.Keep and Answer.PadBytes must not be negative"))
	}
	if a.PadBytes > 0 && (method == "ListImages" || method == "StreamImages") {
		errs = append(errs, errors.New("field Answer.PadBytes: images have no annotations"))
	}
	if a.Nil && (a.Bare || a.PadBytes > 0) {
		errs = append(errs, errors.New("field Answer.Nil excludes Bare and PadBytes: the objects are nil"))
	}
	return errors.Join(errs...)
}

// snapshot is an earlier list, for Answer.Stale.
type snapshot struct {
	containers []*runtimeapi.Container
	sandboxes  []*runtimeapi.PodSandbox
	images     []*runtimeapi.Image
}

func (n *Node) snapshot(method string) (s snapshot) {
	switch method {
	case "ListContainers", "StreamContainers":
		s.containers = items(n.containers.order, nil, (*container).item)
	case "ListPodSandbox", "StreamPodSandboxes":
		s.sandboxes = items(n.sandboxes.order, nil, (*sandbox).item)
	case "ListImages", "StreamImages":
		s.images = items(n.images.order, nil, (*image).message)
	}
	return s
}

// answerContainers returns a list of containers after applying the fault of the call.
func (n *Node) answerContainers(filter *runtimeapi.ContainerFilter, out []*runtimeapi.Container) []*runtimeapi.Container {
	f := n.answer
	if f == nil {
		return out
	}
	if f.Answer.Stale {
		out = items(f.stale.containers, func(c *runtimeapi.Container) bool {
			return wantsContainer(filter, c.GetId(), c.GetPodSandboxId(), c.GetState(), c.GetLabels())
		}, proto.CloneOf)
	}
	if pad := f.Answer.PadBytes; pad > 0 && len(out) > 0 {
		out[0].Annotations = padded(out[0].GetAnnotations(), pad)
	}
	return applyAnswer(f.Answer, out, n.matches)
}

func (n *Node) answerSandboxes(filter *runtimeapi.PodSandboxFilter, out []*runtimeapi.PodSandbox) []*runtimeapi.PodSandbox {
	f := n.answer
	if f == nil {
		return out
	}
	if f.Answer.Stale {
		out = items(f.stale.sandboxes, func(s *runtimeapi.PodSandbox) bool {
			return wantsSandbox(filter, s.GetId(), s.GetState(), s.GetLabels())
		}, proto.CloneOf)
	}
	if pad := f.Answer.PadBytes; pad > 0 && len(out) > 0 {
		out[0].Annotations = padded(out[0].GetAnnotations(), pad)
	}
	return applyAnswer(f.Answer, out, n.matches)
}

func (n *Node) answerImages(out []*runtimeapi.Image) []*runtimeapi.Image {
	f := n.answer
	if f == nil {
		return out
	}
	if f.Answer.Stale {
		out = items(f.stale.images, nil, proto.CloneOf)
	}
	return applyAnswer(f.Answer, out, func(ref, id string) bool {
		img, ok := n.images.find(ref)
		return ref == id || ok && img.id == id
	})
}

// matches reports whether ref, an id or a name, identifies the object with the given id.
func (n *Node) matches(ref, id string) bool { return ref == id || ref == n.objectName(id) }

func padded(annotations map[string]string, bytes int) map[string]string {
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[padding] = strings.Repeat("x", bytes)
	return annotations
}

// applyAnswer applies the changes that are possible for all lists.
func applyAnswer[M interface {
	proto.Message
	GetId() string
}](a Answer, out []M, matches func(ref, id string) bool,
) []M {
	among := func(refs []string) func(M) bool {
		return func(m M) bool {
			return slices.ContainsFunc(refs, func(ref string) bool { return matches(ref, m.GetId()) })
		}
	}
	again := items(out, among(a.Duplicates), proto.CloneOf)
	out = append(slices.DeleteFunc(out, among(a.Missing)), again...)
	if a.Keep != nil {
		out = out[:min(*a.Keep, len(out))]
	}
	for i, m := range out {
		switch {
		case a.Nil:
			var none M
			out[i] = none
		case a.Bare:
			strip(m.ProtoReflect())
		}
	}
	return out
}

// answerStatus returns a status response after applying the fault of the call.
func answerStatus[M proto.Message](n *Node, response M) M {
	f := n.answer
	if f == nil {
		return response
	}
	if f.Answer.Nil {
		proto.Reset(response)
		return response
	}
	// Strip the status but keep it in the response. The response has no other field that is
	// set.
	response.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if field.Message() != nil && !field.IsMap() && !field.IsList() {
			strip(v.Message())
		}
		return true
	})
	return response
}

// strip clears all fields of a message that are messages, lists or maps.
func strip(m protoreflect.Message) {
	m.Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if field.Message() != nil || field.IsList() {
			m.Clear(field)
		}
		return true
	})
}
