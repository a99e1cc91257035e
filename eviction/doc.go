// Package eviction frees a node of what it has too little of before the kernel
// does.
package eviction
