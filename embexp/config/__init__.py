"""From words to a checked description: composing with Hydra, and turning every complaint into ours."""
