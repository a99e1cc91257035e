package fakecri

import (
	"context"
	"slices"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/imageref"
)

// Image is an image in the store or in the registry. The id and digests of an image are
// computed from its name, so that they are the same in every run.
type Image struct {
	// Name is the image's reference, such as "demo/web:1". Required.
	Name string
	// Tags are additional references.
	Tags []string
	// SizeBytes is the image's size. Default the sum of its layers.
	SizeBytes uint64
	// Layers are the image's layers. Default: one layer that no other image has.
	Layers []Layer
	// User is the user in the image's config: a number, a name, or either with
	// a group after a colon.
	User string
	// Pinned marks an image that garbage collection must not remove. RemoveImage removes it
	// nevertheless.
	Pinned bool
	// Pull defines how the image is pulled.
	Pull Pull
}

// Layer is a layer of an image. Images that have a layer with the same name share the
// layer: it uses disk space once and is pulled once.
type Layer struct {
	// Name identifies the layer, like a digest. Required.
	Name string
	// SizeBytes is the layer's size. It must be the same in all images that have the layer.
	SizeBytes uint64
}

func (i Image) names() []string { return append([]string{i.Name}, i.Tags...) }

// image is an image in the store.
type image struct {
	id            string
	tags, digests []string // full references; an image has at least one tag or digest
	Image
}

// imageStore holds the images of the node and the images that can be pulled.
type imageStore struct {
	refs   map[string]*image // by id, tag and digest, in full form
	order  []*image          // in the order in which they were added
	remote map[string]Image  // by full reference
}

func newImageStore(cfg Config) imageStore {
	s := imageStore{refs: map[string]*image{}, remote: map[string]Image{}}
	for _, img := range slices.Concat(cfg.Images, cfg.Registry) {
		img = img.complete()
		for _, name := range img.names() {
			if ref, err := parseRef(name); err == nil {
				s.remote[ref.String()] = img
				s.remote[ref.Repository+"@"+img.digest()] = img
			}
		}
	}
	for _, img := range cfg.Images {
		for _, name := range img.names() {
			if ref, err := parseRef(name); err == nil {
				s.add(img.complete(), ref)
			}
		}
	}
	return s
}

// digest returns the digest of the image's manifest: the digest in the image's name, or a
// digest computed from the name.
func (i Image) digest() string {
	ref, err := parseRef(i.Name)
	if err == nil && ref.Digest != "" {
		return ref.Digest
	}
	return "sha256:" + digest("manifest of "+ref.String())
}

// add adds an image with a reference to the store, and returns the image. If another image
// has the reference as a tag, that image loses the tag.
func (s *imageStore) add(img Image, ref imageref.Ref) *image {
	id := "sha256:" + digest("config of "+img.digest())
	in, ok := s.refs[id]
	if !ok {
		in = &image{id: id, Image: img}
		s.refs[id] = in
		s.order = append(s.order, in)
	}
	if ref.Tag != "" && s.refs[ref.String()] != in {
		s.untag(ref.String())
		s.refs[ref.String()] = in
		in.tags = append(in.tags, ref.String())
	}
	if full := ref.Repository + "@" + img.digest(); s.refs[full] == nil {
		s.refs[full] = in
		in.digests = append(in.digests, full)
	}
	return in
}

// untag removes a tag from the tags of the image that has it. The caller changes refs.
func (s *imageStore) untag(tag string) {
	if other, ok := s.refs[tag]; ok {
		other.tags = slices.DeleteFunc(other.tags, func(t string) bool { return t == tag })
	}
}

// find returns the image with the given id or reference. The id may lack the algorithm
// prefix, and the reference may have any form.
func (s *imageStore) find(name string) (*image, bool) {
	if img, ok := s.refs[name]; ok {
		return img, true
	}
	if img, ok := s.refs["sha256:"+name]; ok {
		return img, true
	}
	ref, err := parseRef(name)
	if err != nil {
		return nil, false
	}
	img, ok := s.refs[ref.String()]
	return img, ok
}

func (s *imageStore) remove(img *image) {
	delete(s.refs, img.id)
	for _, ref := range slices.Concat(img.tags, img.digests) {
		delete(s.refs, ref)
	}
	s.order = slices.DeleteFunc(s.order, func(i *image) bool { return i == img })
}

func (i *image) message() *runtimeapi.Image {
	m := &runtimeapi.Image{
		Id: i.id, RepoTags: slices.Clone(i.tags), RepoDigests: slices.Clone(i.digests),
		Size: i.SizeBytes, Pinned: i.Pinned,
	}
	user, _, _ := strings.Cut(i.User, ":")
	if uid, err := strconv.ParseInt(user, 10, 64); err == nil {
		m.Uid = &runtimeapi.Int64Value{Value: uid}
	} else {
		m.Username = user
	}
	return m
}

// ListImages returns all images. It ignores the filter, as containerd does.
func (n *Node) ListImages(ctx context.Context, _ *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return n.listImages(ctx, "ListImages")
}

func (n *Node) listImages(ctx context.Context, method string) ([]*runtimeapi.Image, error) {
	if err := n.enter(ctx, method, "", ""); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	out := make([]*runtimeapi.Image, len(n.images.order))
	for i, img := range n.images.order {
		out[i] = img.message()
	}
	return n.answerImages(out), nil
}

// ImageStatus returns the status of an image. For an image that is not in the store it
// returns an empty response and no error.
func (n *Node) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	if err := n.enter(ctx, "ImageStatus", "", image.GetImage()); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	img, ok := n.images.find(image.GetImage())
	if !ok {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return answerStatus(n, &runtimeapi.ImageStatusResponse{Image: img.message()}), nil
}

// RemoveImage removes an image with all its references, even if a container uses it.
func (n *Node) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	if err := n.enter(ctx, "RemoveImage", "", image.GetImage()); err != nil {
		return err
	}
	defer n.mu.Unlock()
	if img, ok := n.images.find(image.GetImage()); ok {
		n.images.remove(img)
	}
	return nil
}
