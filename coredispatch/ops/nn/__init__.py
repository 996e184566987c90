"""Parts of networks: affine maps, embedding, attention, dropout, images, optimizer steps."""
