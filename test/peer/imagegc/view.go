package imagegc

import (
	"slices"
	"strings"
	"time"
)

// A view is the information that a model has about a step: the node before the managers are
// called, and the content of each kind of memory about its images at that time.
type view struct {
	at, began        time.Time
	images           []imageView // the present images
	boxes            []boxView
	capacity, filled uint64 // filled can exceed capacity
	act              string
	restart          bool
	faults           Faults
}

// failed reports whether one of the kubelet's list calls fails.
func (v view) failed() bool {
	return v.faults.Images || v.faults.Sandboxes || v.faults.Containers ||
		slices.ContainsFunc(v.boxes, func(b boxView) bool { return b.mute || b.gone })
}

// An imageView is one image in a view.
type imageView struct {
	*Image
	index  int
	name   string
	pinned bool
	pause  bool // it has the name of a pause image
	used   bool // in use by the kubelet's rule
	volume bool // in use as a volume, by ID, for any runtime handler
	named  bool // in use by another name that our manager recognizes
	ages   [memories]age
	guest  guest
}

// A guest is the container that starts while an image is deleted.
type guest struct {
	of    int   // index of the container's image, -1 for no container
	named []int // indexes of the images that it names in any way
}

// A boxView is one container in a view.
type boxView struct {
	mute, gone, ended bool
	since             time.Time // start of the failing status calls for it
}

// look updates all memories and returns the current view.
func (b *bed) look() view {
	n, now := b.node, time.Now()
	v := view{at: now, began: b.began, faults: n.faults}
	v.capacity, v.filled = n.w.Capacity, n.filled()
	for _, c := range n.containers {
		if _, ok := b.muteSince[c.id]; !ok && c.Mute && !c.Gone && !n.faults.Images && !n.faults.Containers {
			b.muteSince[c.id] = now
		}
		v.boxes = append(v.boxes, boxView{c.Mute && !c.Gone, c.Gone, c.ended, b.muteSince[c.id]})
	}
	for _, i := range n.present {
		im := n.w.Images[i]
		v.images = append(v.images, imageView{
			Image: im, index: i, name: n.w.name(im.ID, im.Handler), pinned: im.Pinned, pause: pause(im),
			used:   slices.ContainsFunc(n.containers, func(c *box) bool { return n.uses(c, im) }),
			volume: slices.ContainsFunc(n.containers, func(c *box) bool { return c.readable() && c.volume.GetImage() == im.ID }),
			named:  slices.ContainsFunc(n.containers, func(c *box) bool { return n.names(c, im) }),
			guest:  n.guest(im),
		})
	}
	for m := range b.memories {
		b.memories[m].look(n, &v, m)
	}
	return v
}

// guest returns the container that starts while an image is deleted.
func (n *node) guest(im *Image) guest {
	c, comes := n.visitor(im)
	if !comes {
		return guest{of: -1}
	}
	g, made := guest{of: c.Image}, n.box(c)
	for _, i := range n.present {
		if n.names(made, n.w.Images[i]) {
			g.named = append(g.named, i)
		}
	}
	return g
}

// ties reports whether two images that the kubelet may delete have the same times: their
// order is that of a map.
func (v view) ties() bool {
	seen := map[age]bool{}
	for _, im := range v.images {
		if im.used || im.pinned {
			continue
		}
		if seen[im.ages[theirMemory]] {
			return true
		}
		seen[im.ages[theirMemory]] = true
	}
	return false
}

// inUse reports whether an image is in use by our rule.
func (im imageView) inUse() bool { return im.volume || im.named }

// readable reports whether a container's status can be read and has an image volume.
func (c *box) readable() bool { return c.volume != nil && !c.Mute }

// uses reports whether a container uses an image by the kubelet's rule: the list has the
// image's ID for the container, or the status has a volume with that ID.
func (n *node) uses(c *box, im *Image) bool {
	id := c.imageID
	if id == "" {
		id = c.ref
	}
	if id == im.ID && (!n.w.Gate || c.spec.RuntimeHandler == im.Handler) {
		return true
	}
	// The kubelet records a volume without its handler.
	return c.readable() && c.volume.GetImage() == im.ID && (!n.w.Gate || im.Handler == "")
}

// names reports whether a container names an image in any way. With the feature gate, the
// runtime handler must match.
func (n *node) names(c *box, im *Image) bool {
	spec := c.spec
	if v := c.volume; c.readable() && v.Image != im.ID && namesImage(im, v.Image, v.UserSpecifiedImage) {
		return true
	}
	return namesImage(im, c.imageID, c.ref, spec.Image, spec.UserSpecifiedImage) &&
		(!n.w.Gate || spec.RuntimeHandler == "" || im.Handler == "" || spec.RuntimeHandler == im.Handler)
}

// namesImage reports whether one of the names is a name of the image, in any form.
func namesImage(im *Image, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		if _, digest, ok := strings.Cut(name, "@"); ok {
			return slices.ContainsFunc(im.Digests, func(d string) bool { return strings.HasSuffix(d, digest) })
		}
		return name != "" && (strings.TrimPrefix(name, "sha256:") == strings.TrimPrefix(im.ID, "sha256:") ||
			slices.ContainsFunc(im.Tags, func(tag string) bool { return name == tag || name == short(tag) }))
	})
}

// pause reports whether an image has the name of a pause image.
func pause(im *Image) bool {
	for _, name := range slices.Concat(im.Tags, im.Digests) {
		word := name[strings.LastIndexByte(name, '/')+1:]
		word = word[:strings.IndexAny(word, ":@")]
		if slices.Contains([]string{"pause", "mirrored-pause", "pause-arm64"}, word) {
			return true
		}
	}
	return false
}
